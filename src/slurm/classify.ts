import { constants } from 'node:os';
import type { NoAnswer, StepReply, SubmitReply } from '../backend.js';
import type { Ending } from './broker.js';
import { hintFrom, parsePrintedId } from './job-id.js';
import { policyLimit, REFUSALS } from './refusals.js';

/** A query's answer, or none. Never a refusal: what a query says no to proves nothing about a job. */
export type QueryReply = { readonly kind: 'answered'; readonly stdout: string } | NoAnswer;

/** What a submission came to; the handle is made by the caller, who knows when it was sent. */
export type Submission =
  | { readonly kind: 'accepted'; readonly id: string; readonly cluster: string | null; readonly notes: string }
  | Exclude<SubmitReply, { kind: 'accepted' }>;

const TEXT_LIMIT = 2_000;

/** stderr for people and logs: control characters shown as such, the end kept, where Slurm says what is the matter. */
export function printable(text: string): string {
  const shown = text.trim().replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/g, (byte) => {
    return `\\x${byte.charCodeAt(0).toString(16).padStart(2, '0')}`;
  });
  return shown.length > TEXT_LIMIT ? `… ${shown.slice(-TEXT_LIMIT)}` : shown;
}

export function lastLine(text: string): string {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return lines.at(-1)?.trimEnd() ?? '';
}

/** How a process ended that gave no answer that counts. */
export function noAnswer(command: string, ending: Ending): NoAnswer {
  switch (ending.kind) {
    case 'timedOut':
      return {
        kind: 'timedOut',
        afterMs: ending.afterMs,
        detail: `${command}: no answer; ${printable(ending.stderr)}`,
      };
    case 'killed':
      return { kind: 'unreachable', detail: `${command} was killed by ${ending.signal}` };
    case 'cancelled':
      return { kind: 'unreachable', detail: `${command} was ended by us` };
    case 'unreachable':
      return { kind: 'unreachable', detail: ending.detail };
    case 'exited':
      return {
        kind: 'unreachable',
        detail: `${command} exited with ${String(ending.exitCode)}: ${printable(ending.stderr)}`,
      };
  }
}

/**
 * squeue, sacct, scontrol: an answer is exit 0 with nothing on stderr, its last line complete. Everything else is "don't
 * know", also exit 0 with an error (`squeue -u nobody`), and no text is ever read as "gone" (INV-10).
 */
export function classifyQuery(command: string, ending: Ending): QueryReply {
  if (ending.kind !== 'exited' || ending.exitCode !== 0 || ending.stderr.trim() !== '')
    return noAnswer(command, ending);
  if (ending.stdout !== '' && !ending.stdout.endsWith('\n')) {
    return { kind: 'unreachable', detail: `${command}: its answer ends in the middle of a line` };
  }
  return { kind: 'answered', stdout: ending.stdout };
}

/**
 * sbatch. Exit 0 with an id is accepted whatever stderr says. A refusal counts only if the table knows its text and
 * nothing that looks like an id was printed; any other end may have landed (INV-8).
 */
export function classifySubmission(ending: Ending): Submission {
  const hint = hintFrom(ending.stdout);
  if (ending.kind !== 'exited') return { ...noAnswer('sbatch', ending), hint };
  const stderr = printable(ending.stderr);
  if (ending.exitCode === 0) {
    const printed = parsePrintedId(ending.stdout);
    if (printed.kind === 'one') return { kind: 'accepted', id: printed.id, cluster: printed.cluster, notes: stderr };
    const what = printed.kind === 'none' ? 'no line that is an id' : 'several lines that are ids';
    return { kind: 'unreadable', detail: `sbatch exited with 0 and printed ${what}; ${stderr}`, hint };
  }
  if (parsePrintedId(ending.stdout).kind === 'none') {
    const last = lastLine(ending.stderr);
    const row = REFUSALS.find(
      (known) => last.endsWith(known.line) && (known.needs === undefined || ending.stderr.includes(known.needs)),
    );
    if (row !== undefined) {
      if (row.verdict === 'policy') return policyVerdict(ending.stderr, stderr);
      if (row.verdict === 'deferred') return { kind: 'deferred', limit: row.limit, detail: stderr };
      return { kind: 'refused', reason: row.verdict, detail: stderr };
    }
  }
  return { ...noAnswer('sbatch', ending), hint };
}

/** One text for every limit: the line before it names the limit, and only a limit on submitting is a "later". */
function policyVerdict(stderr: string, detail: string): Submission {
  const limit = policyLimit(stderr);
  return limit?.includes('Submit') === true
    ? { kind: 'deferred', limit, detail }
    : { kind: 'refused', reason: 'BACKEND_REJECTED', detail };
}

/** What scancel may say about a job that is over, unknown or not ours: it was asked, and there is nothing to do. */
const NOTHING_TO_CANCEL =
  /: Kill job error on job id [0-9]+: (?:Invalid job id specified|Job\/step already completing or completed|Access\/permission denied)$/;

/**
 * scancel: asked is exit 0, whatever it says beside that (the observation tells whether it helped), or nothing but
 * known answers about single jobs. Anything else may not have reached the controller.
 */
export function classifyCancel(ending: Ending): { readonly kind: 'asked' } | NoAnswer {
  if (ending.kind !== 'exited') return noAnswer('scancel', ending);
  if (ending.exitCode === 0) return { kind: 'asked' };
  const lines = ending.stderr.split('\n').filter((line) => line.trim() !== '');
  const known = lines.length > 0 && lines.every((line) => NOTHING_TO_CANCEL.test(line));
  return known ? { kind: 'asked' } : noAnswer('scancel', ending);
}

/** srun's own words for "there is no allocation to run in", or that it does not fit into it: nothing was started. */
const NO_STEP =
  /^srun: error: (?:Only allocated [0-9]+ nodes asked for [0-9]+|Slurm job [0-9]+ has expired|Unable to (?:confirm allocation|create step) for job [0-9]+: (?:Invalid job id specified|Job is pending execution|Access\/permission denied|Requested node configuration is not available|Job\/step already completing or completed|Requested nodes are busy|More processors requested than permitted))$/m;

/** srun's own words for trouble on the way; a step's exit code says nothing then. */
const STEP_TROUBLE =
  /^srun: error: (?:Unable to (?:confirm allocation|create step) for job|Task launch for |Application launch failed|Munge |.*Socket timed out on send\/recv operation|.*Unable to contact slurm controller|.*Protocol authentication error)|^srun: fatal: /m;

/**
 * srun for a step: exit 1 is the task's, or srun's own; only srun's own words tell them apart. One that was stopped by us
 * has ended all of its processes: srun kills them before it ends (seen with 22.05.8, also when it is itself killed).
 */
export function classifyStep(ending: Ending): StepReply {
  if (ending.kind === 'cancelled') return { kind: 'stopped', by: 'cancel' };
  if (ending.kind === 'timedOut') return { kind: 'stopped', by: 'timeLimit' };
  if (ending.kind === 'unreachable') return noAnswer('srun', ending);
  if (ending.kind === 'killed') return { kind: 'unreachable', detail: `srun was killed by ${ending.signal}` };
  const { exitCode, stdout, stderr } = ending;
  if (exitCode !== 0 && stdout === '') {
    if (NO_STEP.test(stderr)) return { kind: 'refused', detail: printable(stderr) };
    if (STEP_TROUBLE.test(stderr)) return noAnswer('srun', ending);
  }
  const signal = exitCode > 128 && exitCode < 128 + 65 ? signalName(exitCode - 128) : null;
  return { kind: 'ended', exitCode: signal === null ? exitCode : null, signal };
}

const signalName = (number: number): string =>
  Object.entries(constants.signals).find(([, value]) => value === number)?.[0] ?? String(number);
