import { beforeEach, describe, expect, test } from '@jest/globals';
import type { OutputPiece, StepEnd, StepNews, StepOutput, StepRequest } from '../../src/coordinator/session-api.js';
import { DESK_LIMITS, SessionDesk, type DeskLimits } from '../../src/coordinator/session-desk.js';
import type { PassedStep } from '../../src/coordinator/session-step.js';
import { epoch, stepId, taskId } from '../support/ids.js';
import { problem, sessionView, value } from './harness.js';

const KIB = 1024;
const MIB = 1024 * KIB;

const exec = (n = 1, over: Partial<Extract<StepRequest, { mode: 'exec' }>> = {}): StepRequest => ({
  mode: 'exec',
  stepId: stepId(n),
  argv: ['cat'],
  timeLimitS: null,
  outputLimitBytes: 1000,
  rank: 0,
  stdin: true,
  ...over,
});
const origin = (n = 1, over = {}) => ({
  taskId: taskId(),
  epoch: epoch(),
  workerId: 'w1',
  askedBy: 'alice-1',
  by: 'alice',
  request: exec(n),
  ...over,
});
const base64 = (text: string | Buffer): string => Buffer.from(text).toString('base64');
const decoded = (data: string): string => Buffer.from(data, 'base64').toString();
const out = (offset: number, text: string | Buffer): OutputPiece => ({
  stream: 'stdout',
  offset,
  data: base64(text),
});
const err = (offset: number, text: string): OutputPiece => ({ ...out(offset, text), stream: 'stderr' });
const exited = (exitCode = 0): StepEnd => ({ how: 'exited', exitCode, signal: null, detail: '', droppedBytes: 0 });
const news = (pieces: OutputPiece[], end: StepEnd | null = null, over: Partial<StepNews> = {}): StepNews => ({
  ...{ taskId: taskId(), epoch: epoch(), stepId: stepId(), pieces, notice: null, stdinTaken: 0, sizes: null, end },
  ...over,
});
const from = (stdout = 0, stderr = 0) => ({ stdout, stderr, waitMs: 0 });
const textOf = (output: StepOutput | null): readonly string[] =>
  (output?.pieces ?? []).map(({ stream, offset, data }) => `${stream}@${offset} ${decoded(data)}`);

let desk: SessionDesk;
const open = (limits: Partial<DeskLimits> = {}): void => {
  desk = new SessionDesk('desk_1', { ...DESK_LIMITS, ...limits });
};
beforeEach(() => {
  open();
});

const asked = (n = 1): PassedStep => {
  value(desk.ask(origin(n), 0));
  const step = desk.stepOf(taskId(), stepId(n));
  if (step === null) throw new Error('the step is not there');
  return step;
};
const calls = (after = 0, of: string | null = 'desk_1') =>
  desk.calls('w1', { desk: of, after, waitMs: 0 })?.calls.map(({ seq, call }) => `${seq} ${call.type}`) ?? [];

describe('the mailbox of a worker', () => {
  test('a call is given again until it is confirmed, and to no other worker', () => {
    asked(1);
    asked(2);
    expect(calls()).toEqual(['1 step', '2 step']);
    expect(calls()).toEqual(['1 step', '2 step']);
    expect(calls(1)).toEqual(['2 step']);
    expect(calls(2)).toEqual([]);
    expect(desk.calls('w2', { desk: 'desk_1', after: 0, waitMs: 0 })).toBeNull();
  });

  test('numbers of an earlier life of the coordinator confirm nothing', () => {
    asked(1);
    expect(calls(7, 'desk_0')).toEqual(['1 step']);
    expect(calls(7, null)).toEqual(['1 step']);
  });

  test('a worker that never comes is asked for so much and no more', () => {
    open({ openPerSession: 10_000, steps: 10_000 });
    const answers = new Set<string>();
    for (let n = 1; n <= 4200; n += 1) answers.add(problem(desk.ask(origin(n), 0)));
    expect([...answers]).toEqual(['none', 'too_many_steps']);
    expect(desk.openSteps).toBe(4096);
  });

  test('large calls come in several answers', () => {
    const words = Array.from({ length: 90 }, () => 'x'.repeat(KIB));
    for (let n = 1; n <= 20; n += 1) value(desk.ask(origin(n, { request: exec(n, { argv: words }) }), 0));
    const first = calls();
    expect(first.length).toBeGreaterThan(5);
    expect(first.length).toBeLessThan(20);
    expect(calls(first.length)[0]).toBe(`${first.length + 1} step`);
  });
});

describe('asking for a step', () => {
  test('twice with one id is one step and one call', () => {
    expect(value(desk.ask(origin(), 0))).toEqual({ stepId: stepId(), created: true, epoch: 1 });
    expect(value(desk.ask(origin(), 0))).toEqual({ stepId: stepId(), created: false, epoch: 1 });
    expect(calls()).toEqual(['1 step']);
  });

  test('another command, or another person, under a known id is refused', () => {
    asked();
    expect(problem(desk.ask(origin(1, { request: exec(1, { argv: ['rm'] }) }), 0))).toBe('key_reused');
    expect(problem(desk.ask(origin(1, { askedBy: 'bob-1' }), 0))).toBe('key_reused');
    expect(calls()).toEqual(['1 step']);
  });

  test('64 steps of a session may be under way; one that ends makes room', () => {
    for (let n = 1; n <= 64; n += 1) asked(n);
    expect(problem(desk.ask(origin(65), 0))).toBe('too_many_steps');
    expect(problem(desk.ask(origin(65, { taskId: taskId(2) }), 0))).toBe('none');
    desk.hear(news([], exited()), 'w1', 0);
    expect(problem(desk.ask(origin(66), 0))).toBe('none');
  });

  test('ended steps make way for new ones: first those that were read, then the oldest that nobody reads', () => {
    open({ endedPerSession: 2 });
    for (const n of [1, 2]) {
      asked(n);
      desk.hear(news([out(0, 'x')], exited(), { stepId: stepId(n) }), 'w1', n);
    }
    desk.stepOf(taskId(), stepId(2))?.read(from(), true, 6);
    asked(3);
    expect(desk.stepOf(taskId(), stepId(2))).toBeNull();
    expect(desk.stepOf(taskId(), stepId(1))).not.toBeNull();
    desk.hear(news([], exited(), { stepId: stepId(3) }), 'w1', 7);
    asked(4);
    expect(desk.stepOf(taskId(), stepId(1))).toBeNull();
    expect(desk.stepOf(taskId(), stepId(3))).not.toBeNull();
  });

  test('the coordinator passes on so many steps in all', () => {
    open({ steps: 2 });
    asked(1);
    asked(2);
    expect(problem(desk.ask(origin(3, { taskId: taskId(3) }), 0))).toBe('too_many_steps');
  });
});

describe('output', () => {
  test('goes on from where the reader is, in the order in which it came; the end comes with the last of it', () => {
    const step = asked();
    expect(desk.hear(news([out(0, 'ab'), err(0, 'E'), out(2, 'cd')]), 'w1', 0)).toEqual({
      ...{ stdout: 4, stderr: 1, ended: false },
    });
    expect(textOf(step.read(from(), true, 0))).toEqual(['stdout@0 ab', 'stderr@0 E', 'stdout@2 cd']);
    expect(textOf(step.read(from(3, 1), true, 0))).toEqual(['stdout@3 d']);
    expect(step.read(from(4, 1), true, 0)).toBeNull();
    expect(desk.hear(news([out(4, 'e')], exited(3)), 'w1', 0)).toEqual({ stdout: 5, stderr: 1, ended: true });
    expect(step.read(from(4, 1), true, 0)).toMatchObject({ pieces: [{ offset: 4 }], end: { exitCode: 3 } });
    expect(step.read(from(5, 1), true, 0)).toMatchObject({ pieces: [], end: { exitCode: 3 } });
  });

  test('what is repeated is taken once; what does not continue is not taken, nor is an end after it', () => {
    const step = asked();
    desk.hear(news([out(0, 'abc')]), 'w1', 0);
    expect(desk.hear(news([out(0, 'abc'), out(1, 'bcde')]), 'w1', 0)).toMatchObject({ stdout: 5, ended: false });
    expect(desk.hear(news([out(7, 'h')], exited()), 'w1', 0)).toMatchObject({ stdout: 5, ended: false });
    expect(desk.hear(news([out(5, 'fgh')], exited()), 'w1', 0)).toMatchObject({ stdout: 8, ended: true });
    expect(textOf(step.read(from(), true, 0))).toEqual(['stdout@0 abc', 'stdout@3 de', 'stdout@5 fgh']);
    expect(desk.hear(news([out(8, 'i')], exited(9)), 'w1', 0)).toMatchObject({ stdout: 8, ended: true });
    expect(step.read(from(8), true, 0)?.end).toMatchObject({ exitCode: 0 });
  });

  test('of what nobody reads 4 MiB are kept; the worker is told how much, and sends the rest when it is read', () => {
    const step = asked();
    const piece = Buffer.alloc(256 * KIB, 120);
    const pieces = Array.from({ length: 32 }, (_, n) => out(n * piece.length, piece));
    const taken = desk.hear(news(pieces, exited()), 'w1', 0);
    expect(taken).toMatchObject({ stderr: 0, ended: false });
    expect(taken?.stdout).toBeLessThanOrEqual(4 * MIB);
    expect(taken?.stdout).toBeGreaterThan(3 * MIB);
    let at = 0;
    for (let round = 0; round < 100; round += 1) {
      const given = step.read(from(at), true, 0);
      for (const { offset, data } of given?.pieces ?? []) {
        expect(offset).toBe(at);
        at += Buffer.from(data, 'base64').length;
      }
      if (given?.end !== null && given !== null) break;
      desk.hear(news(pieces, exited()), 'w1', 0);
    }
    expect(at).toBe(8 * MIB);
    expect(step.cost).toBeLessThan(2 * MIB);
  });

  test('a million pieces of one byte are bounded as well', () => {
    const step = asked();
    const bytes = Array.from({ length: 20_000 }, (_, n) => out(n, 'x'));
    expect(desk.hear(news(bytes), 'w1', 0)?.stdout).toBeLessThan(17_000);
    expect(step.cost).toBeLessThanOrEqual(4 * MIB);
    expect(step.read(from(), true, 0)?.pieces.length).toBeLessThan(5000);
  });

  test('all steps together have a bound; what was read to its end makes way', () => {
    open({ unread: 600 * KIB });
    const piece = Buffer.alloc(256 * KIB);
    asked(1);
    desk.hear(news([out(0, piece)], exited()), 'w1', 0);
    asked(2);
    const second = news([out(0, piece), out(piece.length, piece)], null, { stepId: stepId(2) });
    expect(desk.hear(second, 'w1', 0)?.stdout).toBe(piece.length);
    desk.stepOf(taskId(), stepId(1))?.read(from(), true, 0);
    expect(desk.hear(second, 'w1', 0)?.stdout).toBe(2 * piece.length);
    expect(desk.stepOf(taskId(), stepId(1))).toBeNull();
  });

  test('the steps of one session have a bound together, which leaves room for those of others', () => {
    open({ unreadPerSession: 300 * KIB });
    const piece = Buffer.alloc(256 * KIB);
    asked(1);
    asked(2);
    expect(desk.hear(news([out(0, piece)]), 'w1', 0)?.stdout).toBe(piece.length);
    expect(desk.hear(news([out(0, piece)], null, { stepId: stepId(2) }), 'w1', 0)?.stdout).toBe(0);
    value(desk.ask(origin(3, { taskId: taskId(2) }), 0));
    const elsewhere = news([out(0, piece)], null, { taskId: taskId(2), stepId: stepId(3) });
    expect(desk.hear(elsewhere, 'w1', 0)?.stdout).toBe(piece.length);
    desk.stepOf(taskId(), stepId(1))?.read(from(piece.length), true, 0);
    expect(desk.hear(news([out(0, piece)], null, { stepId: stepId(2) }), 'w1', 0)?.stdout).toBe(piece.length);
  });

  test('after a restart a stream goes on where the worker is: the reader sees the gap, also at the very end', () => {
    const step = asked();
    desk.hear(news([out(900, 'x')]), 'w1', 0);
    expect(textOf(step.read(from(500), true, 0))).toEqual(['stdout@900 x']);
    desk.hear(news([err(70, '')], exited()), 'w1', 0);
    expect(textOf(step.read(from(901, 60), true, 0))).toEqual(['stderr@70 ']);
    expect(textOf(step.read(from(901, 70), true, 0))).toEqual([]);
  });

  test('who only looks on takes nothing away from whoever asked', () => {
    const step = asked();
    desk.hear(news([out(0, 'abc')], exited(), { notice: 'the job was replaced' }), 'w1', 0);
    expect(step.read(from(3), false, 0)).toMatchObject({
      pieces: [],
      notice: null,
      end: { how: 'exited' },
    });
    expect(step.isDelivered).toBe(false);
    expect(step.read(from(), true, 0)).toMatchObject({ pieces: [{ offset: 0 }], notice: 'the job was replaced' });
    expect(step.read(from(), true, 0)?.notice).toBeNull();
  });

  test('a step that nobody asks for is unknown; one that has ended is forgotten ten minutes after the last look', () => {
    expect(desk.hear(news([out(0, 'x')]), 'w1', 0)).toBeNull();
    const step = asked();
    desk.tick(3_600_000);
    expect(desk.stepOf(taskId(), stepId())).toBe(step);
    desk.hear(news([], exited()), 'w1', 3_600_000);
    desk.tick(3_600_000 + 599_000);
    step.read(from(), false, 3_600_000 + 599_000);
    desk.tick(3_600_000 + 1_198_000);
    expect(desk.stepOf(taskId(), stepId())).toBe(step);
    desk.tick(3_600_000 + 1_199_000);
    expect(desk.stepOf(taskId(), stepId())).toBeNull();
  });
});

describe('standard input', () => {
  const piece = (offset: number, text: string, end = false) => ({ offset, data: base64(text), end });
  const inputs = () =>
    (desk.calls('w1', { desk: null, after: 0, waitMs: 0 })?.calls ?? []).flatMap(({ call }) =>
      call.type === 'stdin' ? [`${call.piece.offset} ${decoded(call.piece.data)}${call.piece.end ? ' end' : ''}`] : [],
    );

  test('a piece is passed on once, however often it is sent; a hole is refused; after the end there is no more', () => {
    const step = asked();
    expect(value(desk.input(step, piece(0, 'abc')))).toEqual({ taken: 3 });
    expect(value(desk.input(step, piece(0, 'abc')))).toEqual({ taken: 3 });
    expect(value(desk.input(step, piece(2, 'cde', true)))).toEqual({ taken: 5 });
    expect(value(desk.input(step, piece(5, '', true)))).toEqual({ taken: 5 });
    expect(problem(desk.input(step, piece(9, 'x')))).toBe('invalid_request');
    expect(problem(desk.input(step, piece(5, 'x')))).toBe('invalid_request');
    expect(inputs()).toEqual(['0 abc', '3 de end']);
  });

  test('a command that does not read it holds the sender back, whatever its worker has taken up', () => {
    const step = asked();
    const text = 'x'.repeat(200 * KIB);
    const answers: string[] = [];
    for (let n = 0; n < 10; n += 1) answers.push(problem(desk.input(step, piece(n * text.length, text))));
    expect(answers.slice(0, 3)).toEqual(['none', 'none', 'none']);
    expect(answers).toContain('too_many_steps');
    calls(1000);
    const at = step.stdinTaken;
    expect(problem(desk.input(step, piece(at, 'y')))).toBe('too_many_steps');
    desk.hear(news([], null, { stdinTaken: at }), 'w1', 0);
    expect(value(desk.input(step, piece(at, 'y')))).toEqual({ taken: at + 1 });
  });

  test('what is typed into a step that has ended is passed on to nobody', () => {
    const step = asked();
    desk.hear(news([], exited()), 'w1', 0);
    expect(value(desk.input(step, piece(0, 'abc')))).toEqual({ taken: 3 });
    expect(inputs()).toEqual([]);
  });
});

describe('cancelling', () => {
  test('is one call, however often it is wished; also for a step from before the coordinator started', () => {
    asked();
    for (let n = 0; n < 3; n += 1)
      expect(value(desk.cancel(taskId(), stepId(), 'w1', 'alice'))).toEqual({ stepId: stepId(), ended: false });
    value(desk.cancel(taskId(), stepId(9), 'w1', 'alice'));
    expect(calls()).toEqual(['1 step', '2 cancel', '3 cancel']);
    desk.hear(news([], exited()), 'w1', 0);
    expect(value(desk.cancel(taskId(), stepId(), 'w1', 'alice')).ended).toBe(true);
  });
});

describe('a step whose asker has gone', () => {
  test('is not started after a minute, if its worker has not taken it up by then', () => {
    const step = asked();
    expect(desk.waitingOf(step)).toBe('its worker has not taken the step up yet');
    desk.tick(59_000);
    expect(step.hasEnded).toBe(false);
    desk.tick(60_000);
    expect(step.read(from(), true, 60_000)?.end).toMatchObject({ how: 'refused' });
    expect(calls()).toEqual([]);
  });

  test('is asked to end after a quarter of an hour in which nobody followed it; whoever reads it keeps it', () => {
    const step = asked();
    calls();
    desk.tick(14 * 60_000);
    step.read(from(), true, 14 * 60_000);
    desk.tick(28 * 60_000);
    expect(calls(1)).toEqual([]);
    desk.tick(29 * 60_000);
    expect(calls(1)).toEqual(['2 cancel']);
    desk.tick(29 * 60_000 + 1_000);
    expect(calls(1)).toEqual(['2 cancel']);
  });

  test('of which nobody can say whether it runs can not be ended by itself, and that is said', () => {
    asked();
    desk.hear(news([], { ...exited(), how: 'unknown', exitCode: null }), 'w1', 0);
    expect(problem(desk.cancel(taskId(), stepId(), 'w1', 'alice'))).toBe('no_allocation');
  });

  test('its sizes come with its end, so that its reader sees what is missing', () => {
    const step = asked();
    desk.hear(news([out(0, 'abc')], exited(), { sizes: { stdout: 9, stderr: 0 } }), 'w1', 0);
    expect(step.read(from(), true, 0)?.sizes).toEqual({ stdout: 9, stderr: 0 });
  });
});

describe('a worker that begins anew', () => {
  const asksFor = (desk_: string | null, after: number) =>
    (desk.calls('w1', { desk: desk_, after, waitMs: 0 })?.calls ?? []).flatMap(({ call }) =>
      call.type === 'step' ? [call.request.stepId.slice(-1)] : [],
    );

  test('is asked again for every step that it had taken up and that has not ended, and for no other', () => {
    asked(1);
    asked(2);
    expect(asksFor(null, 0)).toEqual(['1', '2']);
    expect(asksFor(desk.id, 2)).toEqual([]);
    desk.hear({ ...news([], exited()), stepId: stepId(2) }, 'w1', 0);
    expect(asksFor(desk.id, 2)).toEqual([]);
    expect(asksFor(null, 0)).toEqual(['1']);
    // Asked once, however often its first question has to be repeated.
    expect(asksFor(null, 0)).toEqual(['1']);
  });
});

describe('when the lease goes', () => {
  const holder = { workerId: 'w1', epoch: epoch() };

  test('INV-7 words of another worker or another epoch change nothing', () => {
    const step = asked();
    expect(desk.hear(news([out(0, 'forged')]), 'w2', 0)).toBeNull();
    expect(desk.hear(news([out(0, 'forged')], exited(), { epoch: epoch(2) }), 'w1', 0)).toBeNull();
    expect(step.read(from(), true, 0)).toBeNull();
  });

  test('what its worker never heard of was not started; of the rest nobody can say; nothing is left in the mailbox', () => {
    const told = asked(1);
    calls();
    const untold = asked(2);
    desk.settle(taskId(), { workerId: 'w2', epoch: epoch(2) }, false, 0);
    expect(told.read(from(), true, 0)?.end).toMatchObject({ how: 'unknown' });
    expect(untold.read(from(), true, 0)?.end).toMatchObject({ how: 'refused' });
    expect(calls()).toEqual([]);
    expect(desk.hear(news([], exited()), 'w1', 0)).toMatchObject({ ended: true });
    expect(told.read(from(), true, 0)?.end?.how).toBe('unknown');
  });

  test('while it stays, nothing happens', () => {
    const step = asked();
    desk.settle(taskId(), holder, false, 0);
    calls();
    desk.tick(1_000_000);
    expect(step.hasEnded).toBe(false);
  });

  test('the worker of a session that is over may still say how its steps ended; after 15 s nobody can say', () => {
    const [first, second] = [asked(1), asked(2)];
    calls();
    desk.settle(taskId(), holder, true, 0);
    desk.hear(news([out(0, 'last')], exited(7)), 'w1', 5_000);
    desk.tick(14_999);
    expect(second.hasEnded).toBe(false);
    desk.tick(15_000);
    expect(first.read(from(), true, 0)).toMatchObject({ end: { how: 'exited', exitCode: 7 } });
    expect(second.read(from(), true, 0)).toMatchObject({ end: { how: 'unknown' } });
  });

  test('a session that is over is forgotten, with its steps and its view', () => {
    asked();
    calls();
    desk.putView(taskId(), { epoch: epoch(), view: sessionView() }, false, 0);
    desk.settle(taskId(), holder, true, 0);
    desk.tick(20_000);
    desk.tick(80_000);
    expect(desk.stepOf(taskId(), stepId())).toBeNull();
    expect(desk.viewOf(taskId())).not.toBeNull();
    desk.tick(600_000);
    expect(desk.viewOf(taskId())).toBeNull();
    desk.putView(taskId(), { epoch: epoch(), view: sessionView() }, true, 600_000);
    desk.tick(1_200_000);
    expect(desk.viewOf(taskId())).toBeNull();
  });
});
