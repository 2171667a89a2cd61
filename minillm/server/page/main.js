// The page's parts, each of which wires itself.

import "./status.js";
import "./chat.js";
import "./views.js";
import "./watch.js";
import "./burst.js";
