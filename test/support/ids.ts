import { Epoch, JobId, StepId, TaskId, Token, type Handle } from '../../src/machines/vocabulary.js';

const unique = (n: number): string => String(n).padStart(26, '0');

export const jobId = (n = 1): JobId => JobId.parse(`job_${unique(n)}`);
export const taskId = (n = 1): TaskId => TaskId.parse(`task_${unique(n)}`);
export const stepId = (n = 1): StepId => StepId.parse(`step_${unique(n)}`);
export const token = (n = 1): Token => Token.parse(unique(n));
export const epoch = (n = 1): Epoch => Epoch.parse(n);
export const handle = (id = '42', submittedAtMs = 10): Handle => ({ id, cluster: null, submittedAtMs });
