import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { sessionDirectory, startRank, step, type AgentProcess } from '../support/agent-process.js';
import { eventually } from '../support/wait.js';

const LIMIT_MS = 60_000;
const BYTES = 100_000_000;
const MIB = 1024 * 1024;

/** A gateway of the test's own, which can stop reading. */
let server: Server;
let socket: Socket | null;
let received: Buffer[];
beforeEach(async () => {
  socket = null;
  received = [];
  server = createServer((one) => {
    socket = one;
    one.on('error', () => undefined);
    one.on('data', (bytes: Buffer) => received.push(bytes));
    one.write('welcome\n');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterEach(() => {
  socket?.destroy();
  server.close();
});

interface Output {
  readonly type: string;
  readonly data?: string;
}

/** What the agent said so far, without the hello. */
const messages = (): Output[] =>
  Buffer.concat(received)
    .toString()
    .split('\n')
    .slice(2, -1)
    .map((line) => JSON.parse(line) as Output);

const procField = (pid: number, file: string, name: string): number =>
  Number(new RegExp(`^${name}:\\s*(\\d+)`, 'm').exec(readFileSync(`/proc/${String(pid)}/${file}`, 'utf8'))?.[1]);

/** A command that writes without end, seen by the agent, while nobody reads. Gives its process, once it stands still. */
async function stuck(): Promise<{ readonly pid: number; readonly agent: AgentProcess; readonly gateway: Socket }> {
  const { port } = server.address() as AddressInfo;
  const session = sessionDirectory({ host: '127.0.0.1', port }, null);
  session.give(0, 'anything');
  const agent = startRank(session, 0);
  const gateway = await eventually(() => (received.length > 0 ? socket : null), 20_000);
  const script = `echo $$; exec head -c ${String(BYTES)} /dev/zero`;
  const order = step(['sh', '-c', script], { outputLimitBytes: 2 * BYTES });
  gateway.write(`${JSON.stringify({ type: 'start', ...order })}\n`);
  const first = await eventually(() => messages()[0]?.data ?? null);
  gateway.pause();
  const pid = Number(Buffer.from(first, 'base64').toString().split('\n')[0]);
  let last = -1;
  let still = 0;
  await eventually(() => {
    const written = procField(pid, 'io', 'wchar');
    still = written === last ? still + 1 : 0;
    last = written;
    return still === 30 ? true : null;
  }, 20_000);
  return { pid, agent, gateway };
}

test(
  'while the gateway does not read, a command waits and the agent holds no more; nothing is lost when it reads again',
  async () => {
    const { agent, gateway } = await stuck();
    expect(procField(agent.pid, 'status', 'VmRSS') * 1024).toBeLessThan(150 * MIB);
    gateway.resume();
    const all = await eventually(() => {
      const tail = received.at(-1)?.toString() ?? '';
      return tail.includes('"ended"') && tail.endsWith('\n') ? messages() : null;
    }, 30_000);
    expect(all.at(-1)).toMatchObject({ type: 'ended', exitCode: 0, droppedBytes: 0 });
    const bytes = all.reduce((sum, { data = '' }) => sum + Buffer.byteLength(data, 'base64'), 0);
    const line = Buffer.from(all[0]?.data ?? '', 'base64').indexOf(10) + 1;
    expect(bytes - line).toBe(BYTES);
  },
  LIMIT_MS,
);

test(
  'a command that waits for a gateway which does not read is ended when the connection is lost',
  async () => {
    const { pid, gateway } = await stuck();
    gateway.destroy();
    await eventually(() => {
      try {
        return readFileSync(`/proc/${String(pid)}/stat`, 'utf8').includes(') Z ') ? true : null;
      } catch {
        return true;
      }
    });
  },
  LIMIT_MS,
);
