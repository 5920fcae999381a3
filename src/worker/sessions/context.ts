import type { SessionPort } from '../../coordinator/session-api.js';
import type { JobId } from '../../machines/vocabulary.js';
import type { PrepareReply } from '../directories.js';
import type { AgentGateway, GatewayEvents } from '../../gateway/agent-port.js';

/** `agentSource`: the agent to copy, or null. `trust`: PEM of what agents have to trust, or null for plain TCP. */
export interface SessionContent {
  readonly agentSource: string | null;
  readonly parameters: unknown;
  readonly settings: {
    readonly host: string;
    readonly port: number;
    readonly trust: string | null;
    readonly aloneLimitS: number;
  };
}

/** What sessions add to the job directories. Never throws for what a file system can do. */
export interface SessionDirectories {
  /** The directory of a session's job, with what its agents need but their credentials. */
  prepareSession(jobId: JobId, content: SessionContent): Promise<PrepareReply>;
  /** Gives an agent its credential, in the place of the one before. */
  putCredential(
    jobId: JobId,
    rank: number,
    text: string,
  ): Promise<{ readonly kind: 'ok' } | { readonly kind: 'io'; readonly detail: string }>;
  /** Where agents find their program (of a copy), their settings, and, as a template, their credential. */
  sessionPaths(jobId: JobId): { readonly agent: string; readonly config: string; readonly credentials: string };
}

/** What a worker needs to serve sessions, beside what it needs for jobs. */
export interface SessionDeps {
  readonly coordinator: SessionPort;
  readonly directories: SessionDirectories;
  /** Starts listening for agents. */
  readonly listen: (events: GatewayEvents) => Promise<AgentGateway>;
  /** The agent that came with this program: copied into each session's directory. */
  readonly agentSource: string;
}
