"""Serving language models: a decoding engine, an OpenAI-compatible server, a chat.

The engine (:mod:`evergrad.serve.engine`) knows tokens alone; text, HTTP and pages are built on it.
"""
