import { expect, test } from '@jest/globals';
import { advertisedName } from '../../src/gateway/advertised-name.js';

test.each([
  ['0.0.0.0', 'gate.example.org', 'node1', 'gate.example.org'],
  ['0.0.0.0', null, 'login1.example.org', 'login1.example.org'],
  ['10.1.2.3', null, 'login1', '10.1.2.3'],
  ['[fd00::7]', null, 'login1', 'fd00::7'],
  ['::', '[fd00::7]', 'login1', 'fd00::7'],
  ['127.0.0.1', null, 'login1', '127.0.0.1'],
  ['::', null, 'login1', 'login1'],
])('listening on %s, advertising %s, on the machine %s, agents dial %s', (listen, advertise, hostname, dialled) => {
  expect(advertisedName(listen, advertise, hostname)).toBe(dialled);
});

test.each(['', ' ', '0.0.0.0', '0', '000.0.0.0', '::', '[::]', '0:0:0:0:0:0:0:0', '::0', '::ffff:0.0.0.0', '*'])(
  'never advertises every address of the machine, written as "%s"',
  (wildcard) => {
    expect(() => advertisedName('10.0.0.1', wildcard, 'login1')).toThrow(/advertise a name or an address/);
    expect(advertisedName(wildcard, null, 'login1')).toBe('login1');
    expect(() => advertisedName(wildcard, null, wildcard)).toThrow(/say which name or address/);
  },
);

test.each(['gate:7000', 'http://gate', 'two words', '-x'])('refuses to advertise what is no name: %s', (name) => {
  expect(() => advertisedName('10.0.0.1', name, 'login1')).toThrow(/neither a host name nor an address/);
});

test('does not advertise a name that means another machine everywhere else', () => {
  expect(() => advertisedName('0.0.0.0', null, 'localhost')).toThrow(/say which name or address/);
});
