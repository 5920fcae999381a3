import type { Epoch, JobId, StepId } from '../machines/vocabulary.js';

/** One agent's place: rank `rank` of the job of a session, at the epoch of its lease. */
export interface RankId {
  readonly jobId: JobId;
  readonly epoch: Epoch;
  readonly rank: number;
}

/** A command for an agent to run: an argument vector, no shell. */
export interface AgentStep {
  readonly stepId: StepId;
  readonly argv: readonly string[];
  readonly stdin: boolean;
  /** null: as long as the session lasts. */
  readonly timeLimitMs: number | null;
  /** Of both streams together; what is beyond is read and dropped at the agent. */
  readonly outputLimitBytes: number;
}

export type AgentStepEnd =
  | {
      readonly kind: 'exited';
      readonly exitCode: number | null;
      /** Such as `SIGKILL`. */
      readonly signal: string | null;
      readonly stoppedBy: 'itself' | 'cancel' | 'timeLimit';
      readonly droppedBytes: number;
    }
  /** It could not be started: nothing ran. */
  | { readonly kind: 'notStarted'; readonly detail: string }
  /** The connection is gone: the agent ends the command, but nobody can say how it ended. */
  | { readonly kind: 'lost'; readonly detail: string };

/** A command that runs at an agent. Calls after its end do nothing. */
export interface AgentStepControl {
  write(bytes: Uint8Array): void;
  /**
   * Resolves when all that was written is on its way (or never will be: the command has ended). A command that does not
   * read its input holds this up: who waits for it before writing on keeps memory bounded.
   */
  inputTaken(): Promise<void>;
  endInput(): void;
  /** SIGTERM to its process group, SIGKILL after a grace. */
  cancel(): void;
}

/** A registered agent. */
export interface AgentLink {
  readonly id: RankId;
  /** What the agent calls the machine that it runs on; for people. */
  readonly node: string;
  /** Whether the agent saw the session's directory. */
  readonly workspace: boolean;
  /** Whether it answered in time. */
  ping(timeoutMs: number): Promise<boolean>;
  start(
    step: AgentStep,
    on: {
      readonly output: (stream: 'stdout' | 'stderr', bytes: Buffer) => void;
      /** Once. */
      readonly ended: (end: AgentStepEnd) => void;
    },
  ): AgentStepControl;
}

export interface GatewayEvents {
  /** A rank is in. The same rank may register again after its connection was lost. */
  registered(link: AgentLink): void;
  /** Its connection is gone, for a reason in words. */
  left(id: RankId, detail: string): void;
}

/** What the worker's sessions need of the gateway that agents dial into. */
export interface AgentGateway {
  /** Where agents dial, by a name that a compute node can resolve. */
  readonly address: { readonly host: string; readonly port: number };
  /** PEM of what agents have to trust; null: plain TCP. */
  readonly trust: string | null;
  /** From here on agents of this job and epoch are awaited; those of its older epochs are refused (INV-7). */
  expect(jobId: JobId, epoch: Epoch, ranks: number): void;
  /** Nobody awaits them any more: told to end, closed, their credentials void. */
  dismiss(jobId: JobId): void;
  /** A fresh credential for one rank, one line; the one before it is void. Throws for a job that is not expected. */
  issue(id: RankId): string;
  /** Ranks that are awaited, not in, and whose credential is close to its end or was burned: to be issued anew. */
  lacking(): readonly RankId[];
  close(): Promise<void>;
}
