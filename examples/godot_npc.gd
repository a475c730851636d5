## A character in Godot 4: say a line, hear the reply while it is written, act its calls.
##
## Add it to the character's scene, set the fields, and listen:
##     npc.heard.connect(func(part): subtitles.text += part)
##     npc.called.connect(func(id, action, arguments): if action == "give_item": npc.answer(id, give(arguments)))
##     npc.say("A rope, please.")
class_name GodotNpc
extends Node

signal heard(part: String)
signal called(id: String, action: String, arguments: Dictionary)
## The whole line, and whether it is the canned one.
signal ended(line: String, canned: bool)

@export var host := "http://127.0.0.1"
@export var port := 8000
@export var model := "hob_tarrant@stand-in"
@export var key := ""
@export var player := "player-1"
## Spoken where no word and no call came in time. The game brings it: sheets have no such line.
@export var deadline_seconds := 8.0
@export var canned_line := "Hm? Ask me again in a moment."

const PATH := "/play/v1/chat/completions"
const REQUEST := """{"model": $model, "user": $player, "stream": true, "messages": [$messages]}"""
const SAID := """{"role": "user", "content": $text}"""
const REPLIED := """{"role": "assistant", "content": $text, "tool_calls": [$calls]}"""
const MADE := """{"id": $id, "type": "function", "function": {"name": $name, "arguments": $text}}"""
const RESULT := """{"role": "tool", "tool_call_id": $id, "content": $text}"""

var _messages: Array[String] = []
var _client: HTTPClient
var _body := ""
var _sent := false
var _failed := false
var _waiting := ""
var _line := ""
var _calls: Array[Dictionary] = []
var _until := 0


func say(text: String) -> void:
	cancel()
	_messages.append(SAID.replace("$text", _quote(text)))
	_body = REQUEST.replace("$model", _quote(model)).replace("$player", _quote(player))
	_body = _body.replace("$messages", ", ".join(_messages))
	_line = ""
	_waiting = ""
	_calls.clear()
	_sent = false
	_failed = false
	_until = Time.get_ticks_msec() + int(deadline_seconds * 1000)
	_client = HTTPClient.new()
	_client.connect_to_host(host, port)


## What came of a call. A call that nobody answers counts as done.
func answer(id: String, result: String) -> void:
	_messages.append(RESULT.replace("$id", _quote(id)).replace("$text", _quote(result)))


## The player walks away: the model's work is broken off, and what was heard so far is not kept.
func cancel() -> void:
	if _client != null:
		_client.close()
		_client = null


func _process(_delta: float) -> void:
	if _client == null:
		return
	_client.poll()
	var status := _client.get_status()
	if status == HTTPClient.STATUS_CONNECTED and not _sent:
		var headers := ["Content-Type: application/json"]
		if key != "":
			headers.append("Authorization: Bearer " + key)
		_client.request(HTTPClient.METHOD_POST, PATH, headers, _body)
		_sent = true
	elif status == HTTPClient.STATUS_BODY:
		_read(_client.read_response_body_chunk().get_string_from_ascii())
	elif status not in [HTTPClient.STATUS_RESOLVING, HTTPClient.STATUS_CONNECTING, HTTPClient.STATUS_REQUESTING]:
		# Refused, or broken off before the end was told.
		_finish(true)
	if _client != null and _line == "" and _calls.is_empty() and Time.get_ticks_msec() > _until:
		_finish(true)


## Events are lines of ASCII that begin with `data: `. Lines that begin otherwise are comments.
func _read(received: String) -> void:
	var lines := (_waiting + received).split("\n")
	_waiting = lines[lines.size() - 1]
	for each in lines.slice(0, lines.size() - 1):
		if each.begins_with("data: {"):
			_take(JSON.parse_string(each.substr(6)))
		elif each.begins_with("data: [DONE]"):
			_finish(_failed)
			return


func _take(event: Dictionary) -> void:
	if event.has("error"):
		_failed = true
		push_warning(event["error"]["message"])
		return
	if event["choices"].is_empty():
		return
	var delta: Dictionary = event["choices"][0]["delta"]
	var words = delta.get("content")
	if words:
		_line += words
		heard.emit(words)
	for part in delta.get("tool_calls", []):
		# The first part of a call has its id and name, later ones more of its arguments.
		if int(part["index"]) == _calls.size():
			_calls.append({"id": part["id"], "name": part["function"]["name"], "text": ""})
		_calls[int(part["index"])]["text"] += part["function"].get("arguments", "")


func _finish(failed: bool) -> void:
	cancel()
	if failed:
		# The canned line is not in the history: the model never said it.
		ended.emit(canned_line, true)
		return
	var made: Array[String] = []
	for call in _calls:
		var written := MADE.replace("$id", _quote(call["id"])).replace("$name", _quote(call["name"]))
		made.append(written.replace("$text", _quote(call["text"])))
	_messages.append(REPLIED.replace("$calls", ", ".join(made)).replace("$text", _quote(_line)))
	for call in _calls.duplicate():
		called.emit(call["id"], call["name"], JSON.parse_string(call["text"]))
	ended.emit(_line, false)


## Without a dollar sign, so that nothing in a text is taken for a place to fill.
func _quote(text: String) -> String:
	return JSON.stringify(text).replace("$", "\\u0024")
