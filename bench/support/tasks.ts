import type { Hello, LeaseGrant, OutcomeRequest, PortAnswer } from '../../src/coordinator/worker-api.js';
import { JobId, Token } from '../../src/machines/vocabulary.js';
import { systemRandom, uniquePart } from '../../src/runtime/random.js';

/** What the workers of the coordinator's benchmarks offer. */
export const HELLO: Hello = {
  site: 'bench',
  kinds: ['training'],
  profiles: [
    {
      name: 'bench',
      description: '',
      cpus: 1,
      memoryMiB: 100,
      gpus: 0,
      nodes: 1,
      walltimeS: 60,
      parametersSchema: null,
      kinds: ['training'],
    },
  ],
  capacity: 1_000,
};

export const taskOf = (n: number): { readonly kind: string; readonly payload: unknown } => ({
  kind: 'training',
  payload: { profile: 'bench', parameters: { message: `task ${n}` } },
});

/** A job's ids, as a worker mints them. */
export const newJob = (): { readonly jobId: JobId; readonly token: Token } => ({
  jobId: JobId.parse(`job_${uniquePart(Date.now(), systemRandom)}`),
  token: Token.parse(uniquePart(Date.now(), systemRandom)),
});

/** The end of a lease: what the task asked for, as its result. */
export const completedBy = (grant: LeaseGrant, jobId: JobId): OutcomeRequest => ({
  type: 'completed',
  taskId: grant.taskId,
  epoch: grant.epoch,
  jobId,
  result: { echo: grant.payload },
  warnings: [],
});

export function portAnswered<T>(answer: PortAnswer<T>): T {
  if (answer.kind !== 'answered') throw new Error(`the coordinator: ${JSON.stringify(answer)}`);
  return answer.value;
}
