import type { TaskId } from '../../src/machines/vocabulary.js';
import type { Principal } from '../../src/coordinator/principal.js';
import type { Coordinator } from '../../src/coordinator/service.js';
import type { Chance } from './chance.js';
import type { Checker } from './checker.js';
import type { CoordinatorHost } from './coordinator-host.js';
import type { Swarm } from './faults.js';
import type { VirtualTime } from './virtual-time.js';

const ADA: Principal = { id: 'credential-ada', name: 'ada', role: 'submitter' };
const ADMIN: Principal = { id: 'credential-admin', name: 'admin', role: 'admin' };
const RETRY_MS = 1_500;

interface PeopleParts {
  readonly time: VirtualTime;
  readonly chance: Chance;
  readonly swarm: Swarm;
  readonly coordinator: CoordinatorHost;
  readonly checker: Checker;
  readonly profiles: readonly [string, ...string[]];
  readonly onError: (error: unknown) => void;
}

/** Clients: they submit with a key, send again what was not answered, cancel, abandon. */
export class People {
  readonly #parts: PeopleParts;
  #busy = 0;
  readonly accepted: TaskId[] = [];

  constructor(parts: PeopleParts) {
    this.#parts = parts;
  }

  /** They have nothing left to do. */
  get isDone(): boolean {
    return this.#busy === 0;
  }

  /** One task, from `atMs` on. */
  plan(number: number, atMs: number): void {
    this.#busy += 1;
    this.#parts.time.after(atMs, () => {
      this.#live(number)
        .catch((error: unknown) => {
          this.#parts.onError(error);
        })
        .finally(() => {
          this.#busy -= 1;
        });
    });
  }

  async #live(number: number): Promise<void> {
    const { time, chance, swarm, checker } = this.#parts;
    const profile = chance.pick(this.#parts.profiles);
    const parameters: unknown = chance.chance(0.03) ? 'not a record' : { number };
    const request = { kind: 'training', payload: { profile, parameters } };
    const key = `key-${String(number)}`;
    const submit = async (): Promise<TaskId> => {
      const answer = await this.#untilAnswered((coordinator) => coordinator.client.submit(ADA, request, key));
      if (!answer.ok) throw new Error(`a submission was refused: ${answer.problem.message}`);
      return answer.value.taskId;
    };
    const taskId = await submit();
    this.accepted.push(taskId);
    if (swarm.strikes('submitsTwice')) {
      await time.wait(chance.int(0, 60_000));
      if ((await submit()) !== taskId) checker.fail(`one key made two tasks: ${taskId} and another`);
    }
    const wish = swarm.strikes('cancels') ? 'cancel' : swarm.strikes('abandons') ? 'abandon' : null;
    if (wish === null) return;
    await time.wait(chance.int(0, 90_000));
    const who = chance.chance(0.8) ? ADA : ADMIN;
    await this.#untilAnswered((coordinator) => coordinator.client[wish](who, taskId));
  }

  /** Repeats a call until its answer arrives: it may have been taken before. */
  async #untilAnswered<T>(ask: (coordinator: Coordinator) => Promise<T>): Promise<T> {
    const { time, chance, swarm, coordinator } = this.#parts;
    for (;;) {
      await time.wait(chance.int(1, 50));
      const running = coordinator.running[chance.int(0, Math.max(0, coordinator.running.length - 1))];
      if (running !== undefined && !swarm.strikes('requestLost')) {
        const died = new Promise<'lost'>((resolve) => {
          running.life.onDeath(() => {
            resolve('lost');
          });
        });
        const asked = ask(running.coordinator).catch((error: unknown) => {
          if (error instanceof Error && (error.name === 'StoreError' || error.name === 'BusyError'))
            return 'lost' as const;
          throw error;
        });
        const answer = await Promise.race([asked, died]);
        if (answer !== 'lost' && !swarm.strikes('answerLost')) return answer;
      }
      await time.wait(RETRY_MS);
    }
  }
}
