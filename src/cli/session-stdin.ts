import type { StdinTaken } from '../coordinator/session-api.js';
import type { ClientAnswer } from '../coordinator/client.js';
import { PIECE_BYTES_MAX } from '../coordinator/session-api.js';
import { messageOf } from './errors.js';
import { aside, type Followed } from './session-follow.js';

const BUSY_STATUS = 429;
const NOT_FOUND_STATUS = 404;
/** While the command has not read what was sent before. */
const BUSY_MS = 100;
/** While the coordinator is away, or has to be asked for the step again by whoever reads its output. */
const AWAY_MS = 1_000;

/**
 * Sends standard input to a step until it ends, or the step does (`over`). Each piece is sent until it is taken. Never
 * throws: a step whose input breaks off has its end in its output.
 */
export async function forwardStdin(step: Followed, over: AbortSignal): Promise<void> {
  const { io } = step;
  let offset = 0;
  try {
    for await (const chunk of io.stdin) {
      for (let from = 0; from < chunk.length; from += PIECE_BYTES_MAX) {
        const piece = chunk.subarray(from, from + PIECE_BYTES_MAX);
        if (!(await sendPiece(step, offset, piece, false, over))) return;
        offset += piece.length;
      }
    }
  } catch (error) {
    // After the step's end, or Ctrl-C, the reading is broken off on purpose.
    if (over.aborted || io.signal.aborted) return;
    await aside(io, `standard input can not be read any more: ${messageOf(error)}`);
  }
  await sendPiece(step, offset, new Uint8Array(), true, over);
}

/** False: there is no use in sending more. */
async function sendPiece(
  { io, client, taskId, request }: Followed,
  offset: number,
  bytes: Uint8Array,
  end: boolean,
  over: AbortSignal,
): Promise<boolean> {
  const piece = { offset, data: Buffer.from(bytes).toString('base64'), end };
  while (!over.aborted) {
    const answer = await client.stepInput(taskId, request.stepId, piece);
    if (answer.kind === 'answered') return true;
    const waitMs = waitOf(answer);
    if (waitMs === null) {
      if (answer.kind === 'refused') await aside(io, `standard input is not taken any more: ${answer.message}`);
      return false;
    }
    await io.clock.sleep(waitMs, over);
  }
  return false;
}

/** How long until the same piece may be taken; null: it never will. */
function waitOf(answer: Exclude<ClientAnswer<StdinTaken>, { kind: 'answered' }>): number | null {
  if (answer.kind === 'unreachable' || answer.status === NOT_FOUND_STATUS) return AWAY_MS;
  return answer.status === BUSY_STATUS ? BUSY_MS : null;
}
