// Words of Mermaid's diagrams, which are shown as code.

const KINDS = "graph flowchart sequenceDiagram classDiagram stateDiagram stateDiagram-v2 erDiagram gantt pie journey gitGraph mindmap timeline quadrantChart";
const WORDS = "subgraph end direction participant actor as note over left right of loop alt else opt par and activate deactivate class state section title click style classDef linkStyle TB TD BT LR RL";

export const mermaid = () => ({
  name: "Mermaid",
  keywords: { $pattern: /[A-Za-z][\w-]*/, keyword: (KINDS + " " + WORDS).split(" ") },
  contains: [
    { scope: "comment", begin: /%%/, end: /$/ },
    { scope: "string", begin: /"/, end: /["\n]/ },
    { scope: "string", begin: /[[({|]/, end: /[\])}|\n]/ },
    { scope: "operator", begin: /[ox<]?(?:--|==|-\.)[->=.ox]{0,8}|->>|-->>|:::/ },
  ],
});
