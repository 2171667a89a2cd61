"""An OpenAI-compatible HTTP server around one AsyncEngine, and a page to chat with it."""
