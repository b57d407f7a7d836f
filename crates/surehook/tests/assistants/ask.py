"""Asks `surehook mcp` with the official client of the Model Context Protocol.

    ask.py PROGRAM [ARGUMENT...]

Reads one JSON object with the tools to call, in order: {"calls": [{"name", "arguments"}]}. A value `"$EVENT"` in the
arguments is replaced by the id of the first event that was found, `"$DELIVERY"` by that of its first delivery. Writes
one JSON object with what the server said: {"version", "server", "instructions", "tools", "results"}.
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters, stdio_client


def fill(arguments, known):
    return {name: known.get(value, value) if isinstance(value, str) else value for name, value in arguments.items()}


def learn(result, known):
    for event in result.get("events", []):
        known.setdefault("$EVENT", event["id"])
    for delivery in result.get("deliveries", []):
        known.setdefault("$DELIVERY", delivery["id"])


async def main():
    wanted = json.load(sys.stdin)
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))
    known, results = {}, []
    async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as session:
        about = await session.initialize()
        tools = await session.list_tools()
        for call in wanted["calls"]:
            result = await session.call_tool(call["name"], fill(call["arguments"], known))
            text = "".join(part.text for part in result.content)
            learn(result.structured_content or {}, known)
            results.append({"text": text, "structured": result.structured_content, "is_error": bool(result.is_error)})
    json.dump(
        {
            "version": about.protocol_version,
            "server": about.server_info.name,
            "instructions": about.instructions,
            "tools": [tool.model_dump(by_alias=True, exclude_none=True) for tool in tools.tools],
            "results": results,
        },
        sys.stdout,
    )


asyncio.run(main())
