// Start of the page: with the answer embedded in a stand-alone file, or with a server to ask.

import { render } from "preact";
import { App, type Shown } from "./app";
import "./style.css";

const place = document.getElementById("page");
const data = document.getElementById("shown");
if (place) render(<App shown={data ? (JSON.parse(data.textContent ?? "null") as Shown) : null} />, place);
