import type { StdinPiece } from '../../coordinator/session-api.js';
import type { AgentStepControl } from '../../gateway/agent-port.js';

/** What a user types into a step, on its way to the command: piece by piece, in order, each once. */
export class StepInput {
  readonly #control: Promise<AgentStepControl | null>;
  #give: (control: AgentStepControl | null) => void = () => undefined;
  #last: Promise<void> = Promise.resolve();
  #at = 0;
  /** Bytes that the command has taken. */
  takenBytes = 0;
  /** A part of it never came: a command with a hole in its input does something that nobody asked for, and is ended. */
  isLost = false;

  constructor() {
    this.#control = new Promise((resolve) => {
      this.#give = resolve;
    });
  }

  /** The command has been started, or with null never will be: what is on its way goes to it, or nowhere. */
  begin(control: AgentStepControl | null): void {
    this.#give(control);
  }

  /** Resolves when the piece is with the command. A piece that came before is not passed on again. */
  async pass(piece: StdinPiece): Promise<void> {
    const mine = this.#last.then(() => this.#pass(piece));
    this.#last = mine.catch(() => undefined);
    await mine;
  }

  async #pass({ offset, data, end }: StdinPiece): Promise<void> {
    const control = await this.#control;
    if (control === null) return;
    if (offset > this.#at) {
      this.isLost = true;
      control.cancel();
      return;
    }
    const bytes = Buffer.from(data, 'base64').subarray(this.#at - offset);
    this.#at += bytes.length;
    if (bytes.length > 0) control.write(bytes);
    if (end) control.endInput();
    await control.inputTaken();
    this.takenBytes = this.#at;
  }
}
