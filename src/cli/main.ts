#!/usr/bin/env node
import './small-heap.js';
import { processIo } from './process-io.js';
import { runCli, sayError } from './run.js';

const io = processIo();
process.on('uncaughtException', (error) => {
  void sayError(io, error, false).finally(() => process.exit(1));
});
process.exitCode = await runCli(process.argv.slice(2), io);
