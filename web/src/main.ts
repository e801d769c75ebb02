import { mount } from "svelte";

import App from "./App.svelte";
import { setSource } from "./lib/api";
import { SERVER } from "./lib/server";
import "./style.css";
import { VIEWS } from "./views";

const target = document.getElementById("app");
if (target === null) throw new Error("index.html has no element with the id app");
setSource(SERVER);
mount(App, { target, props: { views: VIEWS } });
