"""An OpenAI-compatible HTTP server around an engine: `orlop serve MODEL`.

Needs the extra `server`: pip install 'orlop[server]'. Nothing of this package is imported by
`import orlop`. Text, templates, grammars and sampling are the core's; this is the HTTP around them.
"""
