/* Numbers as text, as shared/units.py and shared/rendering.py write them: four significant digits, GB = 1e9 bytes. */
(function () {
  "use strict";

  const PREFIXES = [["E", 1e18], ["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];

  function digits(value) {
    if (value === 0) return "0";
    if (!Number.isFinite(value)) return "∞";
    const decimals = Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value))));
    return value.toLocaleString("en-US", { maximumFractionDigits: Math.min(decimals, 20) });
  }

  function scaled(value, base) {
    const [prefix, size] = PREFIXES.find(([, size]) => Math.abs(value) >= size) || ["", 1];
    return `${digits(value / size)} ${prefix}${base}`;
  }

  const course = (window.course = window.course || {});
  course.units = {
    digits,
    count: (value) => value.toLocaleString("en-US", { maximumFractionDigits: 0 }),
    bytes: (value) => scaled(value, "B"),
    flops: (value) => scaled(value, "FLOP"),
    seconds(value) {
      for (const [prefix, size] of [["", 1], ["m", 1e-3], ["µ", 1e-6]])
        if (Math.abs(value) >= size) return `${digits(value / size)} ${prefix}s`;
      return value ? `${digits(value / 1e-9)} ns` : "0 s";
    },
    rate: (value) => `${digits(value)} tokens/s`,
    dollars(value) {
      if (value >= 0.01 || value === 0) return `$${value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: value < 10 ? 3 : 2 })}`;
      return `$${Number(value.toPrecision(3))}`;
    },
    percent: (share) => (share > 0 && share < 0.001 ? "< 0.1 %" : `${(100 * share).toLocaleString("en-US", { maximumFractionDigits: 1 })} %`),
  };
})();
