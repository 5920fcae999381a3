import type { AnyStateMachine } from 'xstate';
import { toDirectedGraph } from 'xstate/graph';

/** A machine as a picture needs it: one edge per pair of states, with everything that may lead along it. */
export interface MachineGraph {
  readonly id: string;
  readonly initial: string;
  readonly states: readonly { readonly name: string; readonly final: boolean }[];
  readonly edges: readonly { readonly from: string; readonly to: string; readonly labels: readonly string[] }[];
  /** Events that every state takes and none is changed by. */
  readonly ignored: readonly string[];
}

/** For machines whose states are one level deep. */
export function machineGraph(machine: AnyStateMachine): MachineGraph {
  const root = toDirectedGraph(machine);
  const merged = new Map<string, { readonly from: string; readonly to: string; readonly labels: Set<string> }>();
  for (const { edges, stateNode } of root.children) {
    for (const { target, transition, label } of edges) {
      const [from, to] = [stateNode.key, target.key];
      const edge = merged.get(`${from} ${to}`) ?? { from, to, labels: new Set<string>() };
      const guard = typeof transition.guard === 'string' ? ` [${transition.guard}]` : '';
      merged.set(`${from} ${to}`, { ...edge, labels: edge.labels.add(`${label.text}${guard}`) });
    }
  }
  return {
    id: machine.id,
    initial: root.stateNode.initial.target.map(({ key }) => key).join(),
    states: root.children.map(({ stateNode }) => ({ name: stateNode.key, final: stateNode.type === 'final' })),
    edges: [...merged.values()].map(({ from, to, labels }) => ({ from, to, labels: [...labels] })),
    ignored: root.edges.filter(({ transition }) => transition.target === undefined).map(({ label }) => label.text),
  };
}

/** A mermaid `stateDiagram-v2`. */
export function toMermaid(graph: MachineGraph): string {
  const final = graph.states.filter((state) => state.final);
  return [
    'stateDiagram-v2',
    ...graph.ignored.map((event) => `  %% ${event}: taken in every state, changes nothing`),
    `  [*] --> ${graph.initial}`,
    ...graph.edges.map(({ from, to, labels }) => `  ${from} --> ${to} : ${labels.join('<br/>')}`),
    ...final.map(({ name }) => `  ${name} --> [*]`),
    '',
  ].join('\n');
}

/** A directed graph in Graphviz' language. */
export function toDot(graph: MachineGraph): string {
  const quoted = (text: string): string => `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
  return [
    `digraph ${quoted(graph.id)} {`,
    '  graph [fontname="Helvetica", nodesep=0.6, ranksep=0.8];',
    '  node [shape=box, style=rounded, fontname="Helvetica"];',
    '  edge [fontname="Helvetica", fontsize=10];',
    '  "" [shape=point, width=0.15];',
    `  "" -> ${quoted(graph.initial)};`,
    ...graph.states.map(({ name, final }) => `  ${quoted(name)}${final ? ' [peripheries=2]' : ''};`),
    ...graph.edges.map(({ from, to, labels }) => {
      // \l ends a line that is set to the left.
      const label = labels.map((text) => quoted(text).slice(1, -1)).join('\\l');
      return `  ${quoted(from)} -> ${quoted(to)} [label="${label}\\l"];`;
    }),
    '}',
    '',
  ].join('\n');
}
