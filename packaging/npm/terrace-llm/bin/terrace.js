#!/usr/bin/env node
// Starts the program of this platform's package with the same arguments, and ends as it ends.
"use strict";

const { spawn } = require("node:child_process");
const path = require("node:path");

const platform = `@terrace-llm/${process.platform}-${process.arch}`;

function program() {
    const named = process.env.TERRACE_PROGRAM;
    if (named) {
        return named;
    }
    try {
        const folder = path.dirname(require.resolve(`${platform}/package.json`));
        return path.join(folder, "bin", process.platform === "win32" ? "terrace.exe" : "terrace");
    } catch {
        console.error(`error: the package ${platform} is not installed`);
        console.error("hint: install without --omit=optional; systems without such a package build from source");
        process.exit(1);
    }
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
// Ctrl-C reaches both at a terminal, and other signals only this process: the program decides when it ends.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.on(signal, () => {
        if (signal !== "SIGINT" || !process.stdin.isTTY) {
            child.kill(signal);
        }
    });
}
child.on("error", (error) => {
    console.error(`error: ${error.message}`);
    process.exit(1);
});
child.on("exit", (code, signal) => {
    if (signal) {
        process.removeAllListeners(signal);
        process.kill(process.pid, signal);
    } else {
        process.exit(code);
    }
});
