import type { AttemptEnd } from '../../src/backend.js';
import type { VirtualTime } from './virtual-time.js';

/** One submitting process on a gateway host. */
export interface SubmitProcess {
  readonly token: string;
  /** It hangs in the kernel until then; no signal ends it before. */
  unkillableUntilMs: number;
}

/** The processes of one gateway host that could still send a submission: they outlive the worker that started them. */
export class HostProcesses {
  readonly #time: VirtualTime;
  readonly #processes = new Set<SubmitProcess>();

  constructor(time: VirtualTime) {
    this.#time = time;
  }

  start(token: string): SubmitProcess {
    const process = { token, unkillableUntilMs: 0 };
    this.#processes.add(process);
    return process;
  }

  has(process: SubmitProcess): boolean {
    return this.#processes.has(process);
  }

  /** It ended by itself, or a signal ended it. */
  end(process: SubmitProcess): void {
    this.#processes.delete(process);
  }

  /** What the real one does by /proc: kills what is left and says whether anything is. */
  async endAttempt(token: string): Promise<AttemptEnd> {
    let killed = 0;
    for (const process of [...this.#processes]) {
      if (process.token !== token) continue;
      if (process.unkillableUntilMs > this.#time.nowMs) return { kind: 'alive', detail: 'a process hangs' };
      this.end(process);
      killed += 1;
    }
    return { kind: 'ended', how: `ended ${String(killed)} processes` };
  }
}
