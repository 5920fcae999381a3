import type { Command } from 'commander';
import { CliError, messageOf, usageError } from '../errors.js';
import { EXIT } from '../exit-codes.js';
import type { Io } from '../io.js';
import { inspectLive, type InspectionMessage } from '../live-inspection.js';
import { findStream, parseStreamId, stateDirOption } from '../log-source.js';
import { jsonOption, type JsonOption } from '../options.js';
import { note, toJson } from '../output.js';
import { hasJobEvent, hasSessionEvent } from '../replay-states.js';

interface Options extends JsonOption {
  readonly stateDir?: string;
  readonly ws?: string;
}

export function define(command: Command, io: Io): void {
  command
    .argument('<job|session>', 'a job id, or the id of a session')
    .addOption(stateDirOption())
    .option('--ws <url|port>', 'send to a WebSocket: connect to ws://…, or listen on a port of 127.0.0.1')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Sends the events of the job, or of the session, through a live XState actor and prints what XState's inspection says, as JSON Lines.
With --ws the same messages go to the Stately inspector:
  --ws 7078                 open http://127.0.0.1:7078 in a browser (the inspector's page comes from stately.ai),
                            or connect a receiver of @statelyai/inspect; ends when the last one has gone
  --ws ws://127.0.0.1:8080  connects to a receiver that is there already`,
    )
    .action((id: string, options: Options) => inspect(io, id, options));
}

async function inspect(io: Io, id: string, { stateDir, ws }: Options): Promise<void> {
  const target = ws === undefined ? null : targetOf(ws);
  const { events: recorded, log } = await findStream(io, parseStreamId(id), stateDir);
  await log.close();
  const events = recorded.flatMap((one) => (hasJobEvent(one) || hasSessionEvent(one) ? [one.event] : []));
  const messages: InspectionMessage[] = [];
  try {
    inspectLive(events, (message) => messages.push(message));
  } catch (cause) {
    throw new CliError(EXIT.storage, `${id} can not be inspected: ${messageOf(cause)}`, '', { cause });
  }
  const lines = messages.map((message) => toJson(message));
  if (target === null) {
    for (const line of lines) await io.stdout.write(`${line}\n`);
    return;
  }
  const { sendToInspector, serveInspector } = await import('../inspector-socket.js');
  if (target.kind === 'url') {
    await sendToInspector(target.url, lines, io.signal);
    await note(io, `${String(lines.length)} messages sent to ${target.url}`);
    return;
  }
  await serveInspector(target.port, lines, io.signal, (port) => {
    void note(io, `open http://127.0.0.1:${String(port)} to inspect ${id}; Ctrl-C ends this`);
  });
}

type Target = { readonly kind: 'url'; readonly url: string } | { readonly kind: 'port'; readonly port: number };

function targetOf(text: string): Target {
  if (/^\d{1,5}$/.test(text) && Number(text) <= 65_535) return { kind: 'port', port: Number(text) };
  if (URL.canParse(text) && /^wss?:$/.test(new URL(text).protocol)) return { kind: 'url', url: text };
  throw usageError('--ws takes a port, or the URL of a receiver', 'such as 7078 or ws://127.0.0.1:8080');
}
