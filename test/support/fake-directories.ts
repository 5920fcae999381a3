import type {
  ClaimReply,
  CollectReply,
  EndMarker,
  JobDirectories,
  PrepareReply,
} from '../../src/worker/directories.js';
import type { JobId } from '../../src/machines/vocabulary.js';
import { flush } from './manual-clock.js';

export const RESULT: CollectReply = {
  kind: 'ok',
  value: { message: 'hello' },
  bytes: 19,
  sha256: 'b'.repeat(64),
};

/** Job directories in memory: every prepared one holds the result that the test says. */
export class FakeDirectories implements JobDirectories {
  readonly prepared = new Map<JobId, unknown>();
  readonly removed: JobId[] = [];
  readonly markers = new Map<JobId, EndMarker>();
  readonly claims = new Map<JobId, string>();
  claimTrouble: string | null = null;
  readonly wakes: JobId[] = [];
  prepareReply: () => Promise<PrepareReply> = () => Promise.resolve({ kind: 'ok' });
  collectReply: (jobId: JobId) => CollectReply = () => RESULT;

  path(jobId: JobId): string {
    return `/runs/${jobId}`;
  }

  async prepare(jobId: JobId, content: { readonly parameters: unknown }): Promise<PrepareReply> {
    await flush();
    this.prepared.set(jobId, content.parameters);
    return this.prepareReply();
  }

  async collect(jobId: JobId): Promise<CollectReply> {
    await flush();
    return this.collectReply(jobId);
  }

  endMarker(jobId: JobId): Promise<EndMarker | null> {
    return Promise.resolve(this.markers.get(jobId) ?? null);
  }

  claim(jobId: JobId): Promise<ClaimReply> {
    const id = this.claims.get(jobId);
    if (this.claimTrouble !== null) return Promise.resolve({ kind: 'unknown', detail: this.claimTrouble });
    return Promise.resolve(id === undefined ? { kind: 'none' } : { kind: 'held', id });
  }

  tails(): Promise<{ readonly stdout: string; readonly stderr: string }> {
    return Promise.resolve({ stdout: 'out', stderr: 'err' });
  }

  remove(jobId: JobId): Promise<{ readonly kind: 'ok' }> {
    this.removed.push(jobId);
    return Promise.resolve({ kind: 'ok' });
  }

  takeWakes(): Promise<readonly JobId[]> {
    return Promise.resolve(this.wakes.splice(0));
  }
}
