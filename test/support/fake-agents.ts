import type {
  AgentGateway,
  AgentLink,
  AgentStep,
  AgentStepControl,
  AgentStepEnd,
  GatewayEvents,
  RankId,
} from '../../src/gateway/agent-port.js';
import type { Epoch, JobId } from '../../src/machines/vocabulary.js';
import type { SessionContent, SessionDirectories } from '../../src/worker/sessions/context.js';
import type { PrepareReply } from '../../src/worker/directories.js';
import { flush } from './manual-clock.js';

/** A command at a fake agent: it runs until the test, or its cancel, ends it. */
export class FakeCommand implements AgentStepControl {
  readonly step: AgentStep;
  readonly typed: Uint8Array[] = [];
  inputEnded = false;
  cancels = 0;
  obeysCancel = true;
  readonly #on: Parameters<AgentLink['start']>[1];
  #over = false;

  constructor(step: AgentStep, on: Parameters<AgentLink['start']>[1]) {
    this.step = step;
    this.#on = on;
  }

  say(text: string, stream: 'stdout' | 'stderr' = 'stdout'): void {
    this.#on.output(stream, Buffer.from(text));
  }

  end(end: AgentStepEnd): void {
    if (this.#over) return;
    this.#over = true;
    this.#on.ended(end);
  }

  exit(exitCode = 0): void {
    this.end({ kind: 'exited', exitCode, signal: null, stoppedBy: 'itself', droppedBytes: 0 });
  }

  write(bytes: Uint8Array): void {
    this.typed.push(bytes);
  }

  inputTaken(): Promise<void> {
    return flush();
  }

  endInput(): void {
    this.inputEnded = true;
  }

  cancel(): void {
    this.cancels += 1;
    if (!this.obeysCancel) return;
    this.end({ kind: 'exited', exitCode: null, signal: 'SIGTERM', stoppedBy: 'cancel', droppedBytes: 0 });
  }
}

export class FakeAgent implements AgentLink {
  readonly id: RankId;
  readonly node: string;
  readonly workspace = true;
  readonly commands: FakeCommand[] = [];
  pings = 0;
  answers = true;

  constructor(id: RankId) {
    this.id = id;
    this.node = `n${String(id.rank + 1)}`;
  }

  async ping(): Promise<boolean> {
    this.pings += 1;
    await flush();
    return this.answers;
  }

  start(step: AgentStep, on: Parameters<AgentLink['start']>[1]): FakeCommand {
    const command = new FakeCommand(step, on);
    this.commands.push(command);
    return command;
  }
}

/** The gateway without its sockets: agents come and go as the test says. */
export class FakeGateway implements AgentGateway {
  readonly address = { host: 'gate', port: 7_000 };
  readonly trust = null;
  readonly awaited = new Map<JobId, { readonly epoch: Epoch; readonly ranks: number }>();
  readonly dismissed: JobId[] = [];
  readonly issued: RankId[] = [];
  readonly agents = new Map<string, FakeAgent>();
  isClosed = false;
  readonly #events: GatewayEvents;
  /** Who could come in with what was issued last. */
  readonly #valid = new Set<string>();

  constructor(events: GatewayEvents) {
    this.#events = events;
  }

  expect(jobId: JobId, epoch: Epoch, ranks: number): void {
    this.awaited.set(jobId, { epoch, ranks });
  }

  dismiss(jobId: JobId): void {
    this.awaited.delete(jobId);
    this.dismissed.push(jobId);
    for (const { id } of [...this.agents.values()]) if (id.jobId === jobId) this.leave(id, 'the session has ended');
  }

  issue(id: RankId): string {
    if (!this.awaited.has(id.jobId)) throw new Error(`nobody expects ${id.jobId}`);
    this.issued.push(id);
    this.#valid.add(keyOf(id));
    return `credential-${String(this.issued.length)}`;
  }

  lacking(): readonly RankId[] {
    const all = [...this.awaited].flatMap(([jobId, { epoch, ranks }]) =>
      Array.from({ length: ranks }, (_, rank): RankId => ({ jobId, epoch, rank })),
    );
    return all.filter((id) => !this.agents.has(keyOf(id)) && !this.#valid.has(keyOf(id)));
  }

  close(): Promise<void> {
    this.isClosed = true;
    for (const { id } of [...this.agents.values()]) this.leave(id, 'the gateway closed');
    return Promise.resolve();
  }

  /** The agent of a rank dials in with the credential that it has, which is burned. */
  join(jobId: JobId, rank: number, prepare: (agent: FakeAgent) => void = () => undefined): FakeAgent {
    const awaited = this.awaited.get(jobId);
    if (awaited === undefined) throw new Error(`nobody expects ${jobId}`);
    const agent = new FakeAgent({ jobId, epoch: awaited.epoch, rank });
    prepare(agent);
    this.#valid.delete(keyOf(agent.id));
    this.agents.set(keyOf(agent.id), agent);
    this.#events.registered(agent);
    return agent;
  }

  /** Its connection breaks, and with it goes what it runs. */
  leave(id: RankId, detail = 'the connection was closed'): void {
    const agent = this.agents.get(keyOf(id));
    this.agents.delete(keyOf(id));
    for (const command of agent?.commands ?? []) command.end({ kind: 'lost', detail });
    this.#events.left(id, detail);
  }
}

const keyOf = ({ jobId, rank }: RankId): string => `${jobId}/${String(rank)}`;

/** What sessions have in their directories, in memory. */
export class FakeSessionDirectories implements SessionDirectories {
  readonly prepared: { readonly jobId: JobId; readonly content: SessionContent }[] = [];
  readonly credentials: { readonly jobId: JobId; readonly rank: number; readonly text: string }[] = [];
  prepareReply: PrepareReply = { kind: 'ok' };
  /** What a credential can not be written for; null: it is written. */
  trouble: string | null = null;
  /** Credentials that were asked to be written, also in vain. */
  tries = 0;

  async prepareSession(jobId: JobId, content: SessionContent): Promise<PrepareReply> {
    await flush();
    this.prepared.push({ jobId, content });
    return this.prepareReply;
  }

  async putCredential(
    jobId: JobId,
    rank: number,
    text: string,
  ): Promise<{ readonly kind: 'ok' } | { readonly kind: 'io'; readonly detail: string }> {
    this.tries += 1;
    await flush();
    if (this.trouble !== null) return { kind: 'io', detail: this.trouble };
    this.credentials.push({ jobId, rank, text });
    return { kind: 'ok' };
  }

  sessionPaths(jobId: JobId): { readonly agent: string; readonly config: string; readonly credentials: string } {
    const at = `/runs/${jobId}`;
    return { agent: `${at}/agent.mjs`, config: `${at}/agent.json`, credentials: `${at}/credentials/rank-{rank}` };
  }
}
