// The page: a chat, and beside it the server with its tiers of memory.
import "./shared/icons.js";
import "./shared/login.js";
import "./shared/layout.js";
import "./shared/status.js";
import "./tiers/metrics.js";
import "./tiers/plan.js";
import "./tiers/experts.js";
import "./chat/attachments.js";
import "./chat/filling.js";
import "./chat/keys.js";
import "./chat/speed.js";
import { at } from "./shared/dom.js";
import { poll, signals } from "./shared/server.js";
import { current, has, load, save } from "./chat/library.js";
import { open } from "./chat/settings.js";
import * as composer from "./chat/composer.js";
import * as sidebar from "./chat/sidebar.js";
import * as thread from "./chat/thread.js";

at("show-settings").addEventListener("click", () => open(current.settings, () => {
  composer.start();
  if (has(current)) save(current);
}));

await load();
thread.start();
sidebar.start();
composer.start();
// The welcome tells of the model.
signals.addEventListener("change", () => { if (!has(current)) thread.start(); });
poll();
at("text").focus();
