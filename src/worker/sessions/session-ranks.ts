import { clip } from '../../events/schema-parts.js';
import type { AgentGateway, AgentLink, GatewayEvents, RankId } from '../../gateway/agent-port.js';
import type { SessionMachineEvent } from '../../machines/session-events.js';
import type { Epoch, JobId, TaskId } from '../../machines/vocabulary.js';
import type { WorkerDeps } from '../context.js';
import type { SessionDirectories } from './context.js';
import type { SessionBook } from './session-book.js';

const PING_LIMIT_MS = 10_000;
const PING_AGAIN_MS = 2_000;
const SUPPLY_AGAIN_MS = 5_000;

/** What agents are told about their session's place, and the credentials with which they come in. */
export class SessionRanks implements GatewayEvents {
  readonly #deps: WorkerDeps;
  readonly #directories: SessionDirectories;
  readonly #book: SessionBook;
  readonly #tasks = new Map<JobId, TaskId>();
  readonly #links = new Map<string, AgentLink>();
  readonly #inFlight = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  #gateway: AgentGateway | null = null;
  #unwritten: RankId[] = [];
  /** Monotonic ms. */
  #supplyAtMs = 0;

  constructor(deps: WorkerDeps, directories: SessionDirectories, book: SessionBook) {
    this.#deps = deps;
    this.#directories = directories;
    this.#book = book;
  }

  /** The gateway is there. Throws before it is. */
  get gateway(): AgentGateway {
    if (this.#gateway === null) throw new Error('the gateway is not open');
    return this.#gateway;
  }

  set gateway(gateway: AgentGateway) {
    this.#gateway = gateway;
  }

  link(jobId: JobId, rank: number): AgentLink | null {
    return this.#links.get(keyOf(jobId, rank)) ?? null;
  }

  /** From here on the agents of this job are awaited. */
  expect(taskId: TaskId, jobId: JobId, epoch: Epoch, ranks: number): void {
    this.#tasks.set(jobId, taskId);
    this.gateway.expect(jobId, epoch, ranks);
  }

  /** Nobody awaits them any more. */
  dismiss(jobId: JobId): void {
    if (!this.#tasks.delete(jobId)) return;
    this.gateway.dismiss(jobId);
  }

  /** A fresh credential for each rank that lacks one; one that can not be written is tried again, not at once. */
  async supply(): Promise<void> {
    const { clock, log } = this.#deps;
    if (clock.monotonicMs() < this.#supplyAtMs) return;
    const lacking = new Map(
      [...this.#unwritten, ...this.gateway.lacking()].map((id) => [keyOf(id.jobId, id.rank), id]),
    );
    this.#unwritten = [];
    for (const id of lacking.values()) {
      // Dismissed since it could not be written.
      if (!this.#tasks.has(id.jobId)) continue;
      const written = await this.#directories.putCredential(id.jobId, id.rank, this.gateway.issue(id));
      if (written.kind === 'ok') continue;
      this.#unwritten.push(id);
      this.#supplyAtMs = clock.monotonicMs() + SUPPLY_AGAIN_MS;
      log.warn({ ...id, detail: written.detail }, 'the credential of an agent could not be written, trying again');
    }
  }

  registered(link: AgentLink): void {
    this.#links.set(keyOf(link.id.jobId, link.id.rank), link);
    this.#follow(this.#welcome(link));
  }

  left(id: RankId, detail: string): void {
    const key = keyOf(id.jobId, id.rank);
    this.#links.delete(key);
    const taskId = this.#tasks.get(id.jobId);
    if (taskId === undefined) return;
    const { epoch, rank } = id;
    this.#deps.log.warn({ ...id, detail }, 'a rank left its session');
    this.#follow(
      this.#record(taskId, {
        type: 'rank.left',
        v: 1,
        atMs: this.#deps.clock.nowMs(),
        epoch,
        rank,
        detail: clip(detail),
      }),
    );
  }

  /**
   * The stream has forgotten who is in, because the job was queued again: those that are there have come since, or leave
   * in a moment.
   */
  announceAgain(jobId: JobId): void {
    for (const link of this.#links.values()) if (link.id.jobId === jobId) this.#follow(this.#welcome(link));
  }

  /** Agents are told nothing: they come back to the next life of this worker. Resolves when what was heard is recorded. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.gateway.close();
    while (this.#inFlight.size > 0) await Promise.all(this.#inFlight);
  }

  async #welcome(link: AgentLink): Promise<void> {
    const { clock, log } = this.#deps;
    const { jobId, epoch, rank } = link.id;
    const taskId = this.#tasks.get(jobId);
    if (taskId === undefined) return;
    const node = clip(link.node === '' ? 'unknown' : link.node, 200);
    log.info({ ...link.id, node }, 'a rank is in');
    await this.#record(taskId, { type: 'rank.registered', v: 1, atMs: clock.nowMs(), epoch, rank, node });
    // In is not enough: the agent has to answer (INV-5).
    while (!this.#closing.signal.aborted && this.#links.get(keyOf(jobId, rank)) === link) {
      if (await link.ping(PING_LIMIT_MS)) {
        await this.#record(taskId, { type: 'rank.answered', v: 1, atMs: clock.nowMs(), epoch, rank });
        return;
      }
      await clock.sleep(PING_AGAIN_MS, this.#closing.signal);
    }
  }

  async #record(taskId: TaskId, event: SessionMachineEvent): Promise<void> {
    await this.#book.record(taskId, () => [event]);
  }

  #follow(work: Promise<void>): void {
    const mine = work
      .catch((error: unknown) => {
        this.#deps.log.error({ err: error }, 'what an agent did could not be recorded');
      })
      .finally(() => this.#inFlight.delete(mine));
    this.#inFlight.add(mine);
  }
}

const keyOf = (jobId: JobId, rank: number): string => `${jobId}/${String(rank)}`;
