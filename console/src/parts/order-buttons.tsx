// The buttons of the orders about a record. What the present session cannot order is disabled and says why.
interface Props<Name extends string> {
  orders: readonly Name[];
  words: (order: Name) => string;
  /** Why the order cannot be given; "" if it can. */
  whyNot: (order: Name) => string;
  dangers: readonly Name[];
  ask: (order: Name) => void;
}

export function OrderButtons<Name extends string>({ orders, words, whyNot, dangers, ask }: Props<Name>) {
  const reasons = orders.map(whyNot);
  const shared = new Set(reasons).size === 1 ? reasons[0] : "";
  return (
    <div class="orders">
      {orders.map((order, at) => (
        <button
          key={order}
          class={dangers.includes(order) ? "danger" : "secondary"}
          disabled={reasons[at] !== ""}
          title={reasons[at]}
          onClick={() => ask(order)}
        >
          {words(order)}
        </button>
      ))}
      {shared !== "" && <small>{shared}</small>}
    </div>
  );
}
