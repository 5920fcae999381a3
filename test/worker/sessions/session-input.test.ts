import { expect, test } from '@jest/globals';
import { stepId, taskId } from '../../support/ids.js';
import type { FakeCommand } from '../../support/fake-agents.js';
import { exec, SessionWorld } from '../../support/session-world.js';

const type = (world: SessionWorld, offset: number, text: string, end = false): void => {
  const piece = { offset, data: Buffer.from(text).toString('base64'), end };
  world.port.ask({ type: 'stdin', taskId: taskId(), stepId: stepId(), piece });
};
const typed = (command: FakeCommand | undefined): string => Buffer.concat(command?.typed ?? []).toString();

async function withShell(): Promise<{ readonly world: SessionWorld; readonly command: () => FakeCommand | undefined }> {
  const world = await new SessionWorld().ready();
  const agent = await world.agent();
  return { world, command: () => agent.commands[0] };
}

test('what is typed before the command has started reaches it, in order, and then the end of it', async () => {
  const { world, command } = await withShell();
  let release = (): void => undefined;
  const written = new Promise<void>((resolve) => (release = resolve));
  world.beforeAppend = () => written;
  world.ask(exec({ stdin: true }));
  type(world, 0, 'one ');
  type(world, 4, 'two', true);
  await world.run(2_000);
  expect(command()).toBeUndefined();
  release();
  await world.sees(() => command()?.inputEnded === true);
  expect(typed(command())).toBe('one two');
  await world.sees(() => world.port.step(stepId()).stdinTaken === 7);
});

test('a piece that comes again, or in part, is not passed on twice', async () => {
  const { world, command } = await withShell();
  world.ask(exec({ stdin: true }));
  type(world, 0, 'abc');
  type(world, 0, 'abc');
  type(world, 2, 'cdef');
  type(world, 6, 'g');
  await world.sees(() => world.port.step(stepId()).stdinTaken === 7);
  expect(typed(command())).toBe('abcdefg');
});

test('a command with a hole in its input is ended, and says why', async () => {
  const { world, command } = await withShell();
  world.ask(exec({ stdin: true }));
  type(world, 0, 'rm -r ');
  type(world, 16, '/');
  expect(await world.untilEnded()).toMatchObject({
    how: 'cancelled',
    detail: 'a part of its input was lost on the way: it was ended',
  });
  expect(typed(command())).toBe('rm -r ');
});

test('input for a step that is over, or that nobody knows, is passed to nobody', async () => {
  const { world, command } = await withShell();
  type(world, 0, 'nobody');
  world.ask(exec({ stdin: true }));
  await world.sees(() => command() !== undefined);
  command()?.exit();
  await world.untilEnded();
  type(world, 0, 'late');
  await world.run(1_000);
  expect(typed(command())).toBe('');
});

test('typing is a user’s activity, noted at most once a minute', async () => {
  const { world } = await withShell();
  world.ask(exec({ stdin: true }));
  const seen = async (): Promise<number> =>
    (await world.sessionTypes()).filter((one) => one === 'activity.seen').length;
  for (let n = 0; n < 20; n += 1) {
    type(world, n, 'k');
    await world.run(1_000);
  }
  expect(await seen()).toBe(1);
  await world.run(60_000);
  type(world, 20, 'k');
  await world.sees(async () => (await seen()) === 2);
});
