"""Adapters: our store as an implementation of each framework's protocol. Import the one you need.

* ``openai_agents``: ``TranscriptSession``, a session of OpenAI's Agents SDK.
* ``claude_agent_sdk``: ``TranscriptSessionStore``, a session store of the Claude Agent SDK.
* ``pydantic_ai``: ``TranscriptHistory``, the history of a pydantic-ai agent.
* ``pydantic_ai_harness``: ``TranscriptStepStore``, a step store of pydantic-ai-harness.

docs/integrations.md describes what each stores, and what a crash leaves.
"""
