"""How a report looks: rules for what stands inside `.ingot`, so that a notebook's own page stays as it is."""

from __future__ import annotations

STYLE = """
.ingot { font: 15px/1.5 system-ui, sans-serif; color: #1d2733; background: #fff; max-width: 1200px; margin: 0 auto;
  padding: 16px 24px; }
.ingot h1 { font-size: 24px; margin: 8px 0 0; } .ingot h2 { font-size: 17px; margin: 28px 0 8px; }
.ingot small { font-weight: normal; color: #68737f; }
.ingot p { margin: 6px 0; color: #4a5561; }
.ingot code, .ingot pre, .ingot .place { font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
.ingot pre { background: #f5f7f9; border-radius: 6px; padding: 10px 12px; overflow: auto; margin: 6px 0;
  color: #1d2733; max-height: 420px; text-align: left; }
.ingot .place { color: #68737f; margin-left: 6px; }
.ingot .tier { font-size: 13px; font-weight: 600; border-radius: 12px; padding: 2px 10px; vertical-align: 4px;
  color: #fff; background: #77818c; }
.ingot .tier.skipping { background: #2e7d4f; } .ingot .tier.following { background: #2b6cb0; }
.ingot .tier.eager { background: #b7791f; }
.ingot ul { padding-left: 20px; margin: 4px 0; } .ingot li pre { margin: 2px 0 8px; }
.ingot table { border-collapse: collapse; width: 100%; }
.ingot th { text-align: left; font-size: 13px; color: #68737f; font-weight: 600; padding: 4px 12px 4px 0; }
.ingot td { padding: 4px 12px 4px 0; border-top: 1px solid #e6eaee; text-align: left; }
.ingot td.bar { position: relative; width: 27%; font-size: 13px; }
.ingot td.bar span:first-child { position: absolute; left: 0; top: 4px; bottom: 4px; border-radius: 3px; }
.ingot td.bar span:last-child { position: relative; padding-left: 6px; white-space: nowrap; }
.ingot .time { background: #cfe2f3; } .ingot .bandwidth { background: #d9e8d0; }
.ingot .picture { overflow: auto; border: 1px solid #e6eaee; border-radius: 8px; background: #fcfdfe;
  margin-bottom: 8px; max-height: 900px; }
.ingot svg { display: block; margin: 0 auto; }
.ingot svg rect { stroke: #8a96a3; stroke-width: 1; }
.ingot svg text { font: 12px ui-monospace, "DejaVu Sans Mono", monospace; text-anchor: middle; fill: #1d2733; }
.ingot svg text.detail { font-size: 9.5px; fill: #5b6672; }
.ingot svg .arrow { fill: none; stroke: #9aa5b1; stroke-width: 1.3; }
.ingot details { margin: 4px 0; } .ingot details details { margin-left: 16px; }
.ingot summary { cursor: pointer; padding: 3px 0; }
.ingot .kernel > summary { font-size: 14px; }
.ingot .chip { display: inline-block; width: 14px; height: 14px; border-radius: 4px; border: 1px solid #8a96a3;
  vertical-align: -2px; margin: 0 6px 0 4px; }
"""
