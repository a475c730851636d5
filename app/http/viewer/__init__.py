"""Pages for people.

To add one:

- A page is a function that calls `renderer.render(request, template, values, data)`: `values` for the template, `data`
  for its twin in JSON. What is not there: `renderer.render_missing`.
- `@needs` above it says which scope a key needs and where the bounds of a key are checked. Whatever it lists is
  filtered by the caller's bounds.
- Templates extend `layout.html`, set `here` and `docs`, and say one thing with `parts.says`: the sentence comes from
  `app.http.viewer.sentences`, and `tests/http/viewer/says.yaml` finds it. Links are built by `link(path, name=value)`.
  No `style`, no `on…`, no inline script: the policy refuses them.
- Charts are `app.toolkit.charts` with the macros of `charts.html`. Colours are the tokens in `app/toolkit/palette.css`,
  for light and dark; a colour never tells something alone.
- A table of class `sortable` sorts in the browser; `ranked` turns its rows into cards on a phone, with `data-name` as
  the names of figures.
- A page that changes something is a form with `post`: `GET` may be a link of another site. Keys for it are `data-key`
  in a form of class `by-key`, copy buttons are `data-copy`.
- Templates escape every value, and show by their codes what nobody would see. What a form sends back and nobody reads
  is `as_sent`. Long texts go through `cut_excerpt`.
- `tests/browser/test_hostile_pages.py` and `tests/browser/test_accessibility.py` ask each page; a page that shows
  nothing hostile yet needs its address there. `python -m docs.screenshots URL docs/pictures/viewer` makes the pictures
  again.
"""
