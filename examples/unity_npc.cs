// A character in Unity (2021 or newer): say a line, hear the reply while it is written, act its calls.
//
// Put it on the character's object, set the fields, and listen:
//     npc.Heard += part => subtitles.text += part;
//     npc.Called += (id, name, arguments) => { if (name == "give_item") npc.Answer(id, Give(arguments)); };
//     npc.Say("A rope, please.");

using System;
using System.Collections;
using System.Collections.Generic;
using System.Linq;
using System.Text;
using UnityEngine;
using UnityEngine.Networking;

public class UnityNpc : MonoBehaviour
{
    public string url = "http://127.0.0.1:8000/play/v1/chat/completions";
    public string model = "hob_tarrant@stand-in";
    public string key = "";
    public string player = "player-1";
    // Spoken where no word and no call came in time. The game brings it: sheets have no such line.
    public float deadlineSeconds = 8f;
    public string cannedLine = "Hm? Ask me again in a moment.";

    public event Action<string> Heard;
    // Id, name, and arguments as JSON.
    public event Action<string, string, string> Called;
    // The whole line, and whether it is the canned one.
    public event Action<string, bool> Ended;

    const string Request = @"{""model"": $model, ""user"": $player, ""stream"": true, ""messages"": [$messages]}";
    const string Said = @"{""role"": ""user"", ""content"": $text}";
    const string Replied = @"{""role"": ""assistant"", ""content"": $text, ""tool_calls"": [$calls]}";
    const string Made = @"{""id"": $id, ""type"": ""function"", ""function"": {""name"": $name, ""arguments"": $text}}";
    const string Result = @"{""role"": ""tool"", ""tool_call_id"": $id, ""content"": $text}";

    [Serializable] class Event { public Choice[] choices; public Error error; }
    [Serializable] class Error { public string message; }
    [Serializable] class Choice { public Delta delta; }
    [Serializable] class Delta { public string content; public Call[] tool_calls; }
    [Serializable] class Call { public int index; public string id; public Function function; }
    [Serializable] class Function { public string name; public string arguments; }

    readonly List<string> messages = new List<string>();
    readonly List<Call> calls = new List<Call>();
    readonly StringBuilder line = new StringBuilder();
    UnityWebRequest running;
    bool failed;

    public void Say(string text)
    {
        Cancel();
        messages.Add(Said.Replace("$text", Quote(text)));
        StartCoroutine(Ask());
    }

    // What came of a call. A call that nobody answers counts as done.
    public void Answer(string id, string result)
    {
        messages.Add(Result.Replace("$id", Quote(id)).Replace("$text", Quote(result)));
    }

    // The player walks away: the model's work is broken off, and what was heard so far is not kept.
    public void Cancel()
    {
        StopAllCoroutines();
        running?.Abort();
        running?.Dispose();
        running = null;
    }

    IEnumerator Ask()
    {
        line.Clear();
        calls.Clear();
        failed = false;
        string body = Request.Replace("$model", Quote(model)).Replace("$player", Quote(player))
            .Replace("$messages", string.Join(", ", messages));
        running = new UnityWebRequest(url, "POST")
        {
            uploadHandler = new UploadHandlerRaw(Encoding.UTF8.GetBytes(body)) { contentType = "application/json" },
            downloadHandler = new EventReader(Read),
        };
        if (key != "") running.SetRequestHeader("Authorization", "Bearer " + key);
        running.SendWebRequest();
        float until = Time.realtimeSinceStartup + deadlineSeconds;
        while (!running.isDone)
        {
            bool waits = line.Length == 0 && calls.Count == 0;
            if (waits && Time.realtimeSinceStartup > until) break;
            yield return null;
        }
        bool isWhole = running.isDone && running.result == UnityWebRequest.Result.Success && !failed;
        if (!running.isDone) running.Abort();
        running.Dispose();
        running = null;
        if (isWhole) Finish();
        // The canned line is not in the history: the model never said it.
        else Ended?.Invoke(cannedLine, true);
    }

    void Finish()
    {
        string made = string.Join(", ", calls.Select(call => Made.Replace("$id", Quote(call.id))
            .Replace("$name", Quote(call.function.name)).Replace("$text", Quote(call.function.arguments))));
        messages.Add(Replied.Replace("$calls", made).Replace("$text", Quote(line.ToString())));
        foreach (Call call in calls) Called?.Invoke(call.id, call.function.name, call.function.arguments);
        Ended?.Invoke(line.ToString(), false);
    }

    void Read(string data)
    {
        Event told = JsonUtility.FromJson<Event>(data);
        if (!string.IsNullOrEmpty(told.error?.message))
        {
            failed = true;
            Debug.LogWarning(told.error.message);
        }
        if (told.choices == null || told.choices.Length == 0) return;
        Delta delta = told.choices[0].delta;
        if (!string.IsNullOrEmpty(delta?.content))
        {
            line.Append(delta.content);
            Heard?.Invoke(delta.content);
        }
        foreach (Call part in delta?.tool_calls ?? Array.Empty<Call>())
        {
            // The first part of a call has its id and name, later ones more of its arguments.
            if (part.index == calls.Count) calls.Add(part);
            else calls[part.index].function.arguments += part.function.arguments;
        }
    }

    // Without a dollar sign, so that nothing in a text is taken for a place to fill.
    static string Quote(string text)
    {
        var quoted = new StringBuilder("\"");
        foreach (char sign in text)
        {
            if (sign == '"' || sign == '\\') quoted.Append('\\').Append(sign);
            else if (sign < ' ' || sign == '$') quoted.Append("\\u").Append(((int)sign).ToString("x4"));
            else quoted.Append(sign);
        }
        return quoted.Append('"').ToString();
    }

    // Events are lines of ASCII that begin with `data: `. Lines that begin otherwise are comments.
    class EventReader : DownloadHandlerScript
    {
        readonly Action<string> read;
        string waiting = "";

        public EventReader(Action<string> read) { this.read = read; }

        protected override bool ReceiveData(byte[] data, int length)
        {
            string[] lines = (waiting + Encoding.ASCII.GetString(data, 0, length)).Split('\n');
            waiting = lines[lines.Length - 1];
            foreach (string each in lines.Take(lines.Length - 1))
                if (each.StartsWith("data: {")) read(each.Substring(6));
            return true;
        }
    }
}
