import type { AnyEventObject, AnyMachineSnapshot, AnyStateMachine, AnyTransitionDefinition } from 'xstate';

/** A transition as a person names it: `Running job.observed [seenFailed] → Failed`. */
function describeTransition({ source, eventType, guard, target }: AnyTransitionDefinition): string {
  const condition = typeof guard === 'string' ? ` [${guard}]` : '';
  const to = (target ?? []).map((node) => node.key).join(', ');
  return `${source.key} ${eventType}${condition}${to === '' ? '' : ` → ${to}`}`;
}

/** Every transition that the machine's config declares. */
export function transitionsOf(machine: AnyStateMachine): ReadonlySet<string> {
  const nodes = [machine.root, ...Object.values(machine.root.states)];
  const all = nodes.flatMap((node) => [...node.transitions.values()].flat());
  return new Set(all.map(describeTransition));
}

/** The transitions that this event takes in this state; none if it is illegal there. */
export const transitionsTaken = (snapshot: AnyMachineSnapshot, event: AnyEventObject): readonly string[] =>
  (snapshot.machine.getTransitionData(snapshot, event) as readonly AnyTransitionDefinition[]).map(describeTransition);
