"""What can be taken away whole: one folder a capability, with its tables, rules, routes and pages.

`app.main` puts them together; nothing below knows them.
"""
