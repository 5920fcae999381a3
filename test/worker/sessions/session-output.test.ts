import { describe, expect, test } from '@jest/globals';
import { epoch, stepId, taskId } from '../../support/ids.js';
import type { FakeCommand } from '../../support/fake-agents.js';
import { exec, SessionWorld } from '../../support/session-world.js';

const MINUTE = 60_000;
const PIECE = 'x'.repeat(64 * 1024);
const UNREACHABLE = { kind: 'unreachable', detail: 'refused' } as const;

/** A session with one command at rank 0. */
async function withCommand(): Promise<{ readonly world: SessionWorld; readonly command: FakeCommand }> {
  const world = await new SessionWorld().ready();
  world.ask(exec({ outputLimitBytes: 16 * 1024 * 1024 }));
  const agent = await world.agent();
  await world.sees(() => agent.commands.length > 0);
  const [command] = agent.commands;
  if (command === undefined) throw new Error('nothing was started');
  return { world, command };
}

/** The pauses between offers of a step, from the first one on that is made after `atMs`. */
const pausesOf = ({ port }: SessionWorld, atMs: number): readonly number[] => {
  const times = port.offers.map((offer) => offer.atMs).filter((time) => time >= atMs);
  return times.slice(1).map((time, index) => time - (times[index] ?? 0));
};

describe('what a step writes', () => {
  test('is handed over in order, as much as a report takes, and its end only with the last of it', async () => {
    const { world, command } = await withCommand();
    for (let n = 0; n < 100; n += 1) command.say(`${String(n).padStart(4, '0')}${PIECE.slice(4)}`);
    command.say('the last words', 'stderr');
    command.exit();
    await world.untilEnded();
    const text = world.port.text(stepId());
    expect(text).toHaveLength(100 * PIECE.length);
    expect(text.split(/x+/).slice(0, -1).map(Number)).toEqual(Array.from({ length: 100 }, (_, n) => n));
    expect(world.port.text(stepId(), 'stderr')).toBe('the last words');
    const offers = world.port.offers.map(({ news }) => news);
    expect(offers.length).toBeGreaterThan(1);
    for (const { pieces } of offers) expect(pieces.length).toBeLessThanOrEqual(64);
    const ends = offers.filter(({ end }) => end !== null);
    expect(ends).toHaveLength(1);
    expect(ends[0]).toBe(offers.at(-1));
    expect(ends[0]?.pieces.at(-1)?.stream).toBe('stderr');
  });

  test('that nobody takes is offered again one piece at a time, with pauses that grow from 50 ms to 2 s', async () => {
    const { world, command } = await withCommand();
    world.port.roomBytes = 0;
    const sinceMs = world.clock.monotonicMs();
    for (let n = 0; n < 5; n += 1) command.say(PIECE);
    command.exit();
    while (world.clock.monotonicMs() < sinceMs + 10_000) await world.round(10);
    expect(pausesOf(world, sinceMs).slice(0, 9)).toEqual([50, 100, 200, 400, 800, 1_600, 2_000, 2_000, 2_000]);
    const late = world.port.offers.slice(-5).map(({ news }) => [news.pieces.length, news.end]);
    expect(late).toEqual(Array.from({ length: 5 }, () => [1, null]));
    expect(world.port.step(stepId()).end).toBeNull();
    world.port.roomBytes = Number.POSITIVE_INFINITY;
    await world.sees(() => world.port.step(stepId()).end !== null, 2_500);
    expect(world.port.text(stepId()) === PIECE.repeat(5)).toBe(true);
  });

  test('is offered at the reader’s pace: a coordinator that takes a part gets what follows', async () => {
    const { world, command } = await withCommand();
    for (let n = 0; n < 3; n += 1) command.say(`${String(n)}${PIECE.slice(1)}`);
    command.exit();
    for (let room = 0; world.port.step(stepId()).end === null; room += 50_000) {
      expect(room).toBeLessThan(300_000);
      world.port.roomBytes = room;
      await world.run(2_200);
    }
    const text = world.port.text(stepId());
    expect([text.length, text.split(/x+/)]).toEqual([3 * PIECE.length, ['0', '1', '2', '']]);
  });

  test('that nobody asks for any more is kept, and told to whoever asks again, of the one command that was started', async () => {
    const { world, command } = await withCommand();
    await world.run(1_000);
    world.port.unknown.add(stepId());
    command.say('first');
    await world.run(1_000);
    const offered = world.port.offers.length;
    command.say(', second');
    command.exit();
    await world.run(MINUTE);
    expect(world.port.offers).toHaveLength(offered);
    world.port.unknown.clear();
    world.ask(exec());
    expect((await world.untilEnded()).how).toBe('exited');
    expect(world.port.text(stepId())).toBe('first, second');
    expect((await world.agent()).commands).toHaveLength(1);
  });

  test('is given up when nobody has come for it for half an hour; how it ended is not, nor how much there was', async () => {
    const { world, command } = await withCommand();
    world.port.unknown.add(stepId());
    command.say('nobody reads this');
    command.exit(3);
    await world.run(31 * MINUTE);
    world.port.unknown.clear();
    world.ask(exec());
    expect((await world.untilEnded()).exitCode).toBe(3);
    expect(world.port.text(stepId())).toBe('');
    expect((await world.agent()).commands).toHaveLength(1);
  });
});

describe('a coordinator that refuses a report', () => {
  test('is not offered its output again; the end is, and steps after it are heard of', async () => {
    const { world, command } = await withCommand();
    world.port.trouble = { kind: 'refused', status: 413, detail: 'too large' };
    command.say('never taken');
    command.exit(3);
    await world.run(2_000);
    world.port.trouble = null;
    expect((await world.untilEnded()).exitCode).toBe(3);
    expect(world.port.text(stepId())).toBe('');
    expect(world.port.offers.at(-1)?.news.sizes).toEqual({ stdout: 11, stderr: 0 });
    world.ask(exec({ stepId: stepId(2) }));
    const { commands } = await world.agent();
    await world.sees(() => commands.length === 2);
    commands[1]?.say('heard');
    commands[1]?.exit();
    await world.untilEnded(stepId(2));
    expect(world.port.text(stepId(2))).toBe('heard');
  });
});

describe('a coordinator that is away', () => {
  test('gets all of it when it is back, in reports that were tried again with growing pauses', async () => {
    const { world, command } = await withCommand();
    world.port.trouble = UNREACHABLE;
    const reports = world.port.reports.length;
    world.port.tries.report = 0;
    command.say('said meanwhile');
    command.exit();
    await world.run(MINUTE);
    expect(world.port.tries.report).toBeLessThanOrEqual(12);
    expect(world.port.reports).toHaveLength(reports);
    world.port.trouble = null;
    await world.sees(() => world.port.step(stepId()).end !== null, 11_000);
    expect(world.port.text(stepId())).toBe('said meanwhile');
  });

  test('is asked for steps with growing pauses, and gives each one once', async () => {
    const world = await new SessionWorld().ready();
    world.port.trouble = UNREACHABLE;
    // The call that is under way hears of it with the next step.
    world.ask(exec());
    await world.run(1_000);
    const asked = world.port.requests.length;
    await world.run(MINUTE);
    const tries = world.port.requests.length - asked;
    expect(tries).toBeGreaterThan(4);
    expect(tries).toBeLessThan(12);
    world.port.trouble = null;
    const agent = await world.agent();
    await world.sees(() => agent.commands.length > 0, 11_000);
    await world.run(MINUTE);
    expect(agent.commands).toHaveLength(1);
  });
});

describe('a coordinator that has restarted', () => {
  test('gets the views of all sessions anew, and numbers its calls from the first one', async () => {
    const { world, command } = await withCommand();
    await world.run(5_000);
    const told = world.port.views.length;
    await world.run(30_000);
    expect(world.port.views).toHaveLength(told);
    world.port.restart();
    await world.sees(() => world.port.views.length > told, 1_000);
    expect(world.port.views.at(-1)).toMatchObject({ taskId: taskId(), state: 'Ready', steps: [{ stepId: stepId() }] });
    expect(world.port.reports.at(-1)?.views[0]?.epoch).toBe(epoch());
    world.ask(exec());
    await world.run(1_000);
    expect(world.port.requests.at(-1)).toMatchObject({ desk: 'desk-2', after: 1 });
    command.say('still here');
    command.exit();
    await world.untilEnded();
    expect(world.port.text(stepId())).toBe('still here');
    expect((await world.agent()).commands).toHaveLength(1);
  });

  test('is not told a second time what the one before has taken of a step', async () => {
    const { world, command } = await withCommand();
    command.say('before, ');
    await world.sees(() => world.port.text(stepId()) === 'before, ');
    world.port.restart();
    world.ask(exec());
    command.say('after');
    command.exit();
    await world.untilEnded();
    expect(world.port.step(stepId())).toMatchObject({ from: { stdout: 8 }, bytes: { stdout: Buffer.from('after') } });
  });
});
