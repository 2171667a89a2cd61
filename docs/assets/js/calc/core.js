/* The calculators' arithmetic: shared/budget.py, shared/operators.py, shared/roofline.py and shared/cost.py, function by function,
   with their names in camelCase and keyword arguments as a last object. A test compares the two; what each means is said there. */
(function () {
  "use strict";

  function positive(values) {
    for (const [name, value] of Object.entries(values))
      if (!(Number.isFinite(value) && value > 0)) throw new RangeError(`${name} must be above zero, got ${value}`);
  }

  function notNegative(values) {
    for (const [name, value] of Object.entries(values))
      if (!(Number.isFinite(value) && value >= 0)) throw new RangeError(`${name} must not be negative, got ${value}`);
  }

  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

  /* ---- budget.py ---- */

  const WEIGHT_BITS = {
    fp32: 32, bf16: 16, fp16: 16, fp8: 8, int8: 8,
    "int4-g128": 4 + 20 / 128, "int4-g64": 4 + 20 / 64, "int4-g32": 4 + 20 / 32,
  };

  function kvBytesPerToken(numLayers, numKvHeads, headDim, bytesPerElement = 2) {
    positive({ numLayers, numKvHeads, headDim, bytesPerElement });
    return 2 * numLayers * numKvHeads * headDim * bytesPerElement;
  }

  function kvTokenBudget(memoryBytes, weightBytes, bytesPerToken, { overheadBytes = 0, gpuMemoryUtilization = 1 } = {}) {
    positive({ memoryBytes, weightBytes, bytesPerToken });
    notNegative({ overheadBytes });
    if (!(gpuMemoryUtilization > 0 && gpuMemoryUtilization <= 1))
      throw new RangeError(`gpuMemoryUtilization is a share above 0 and at most 1, got ${gpuMemoryUtilization}`);
    const left = memoryBytes * gpuMemoryUtilization - weightBytes - overheadBytes;
    return Math.max(0, Math.floor(left / bytesPerToken));
  }

  function maxRequests(tokenBudget, tokensPerRequest, blockSize = 16) {
    notNegative({ tokenBudget });
    positive({ tokensPerRequest, blockSize });
    return Math.floor(Math.floor(tokenBudget / blockSize) / Math.ceil(tokensPerRequest / blockSize));
  }

  function parameters(model) {
    const { numLayers: layers, hiddenSize: hidden, moe } = model;
    const count = {
      embedding: model.vocabSize * hidden,
      attention: layers * attentionParameters(model),
      mlp: layers * 3 * hidden * model.intermediateSize,
      router: 0,
      norms: (layers * model.normsPerLayer + 1) * hidden + layers * headNorms(model),
      head: model.tied ? 0 : model.vocabSize * hidden,
    };
    if (moe) {
      const dense = moe.numDenseLayers * 3 * hidden * model.intermediateSize;
      count.mlp = dense + numMoeLayers(model) * (moe.numExperts + moe.numShared) * expertParameters(model);
      count.router = numMoeLayers(model) * (hidden + Number(moe.routerBias)) * moe.numExperts;
    }
    return count;
  }

  const numMoeLayers = (model) => (model.moe ? model.numLayers - model.moe.numDenseLayers : 0);
  const numParameters = (model) => sum(Object.values(parameters(model)));

  function activeParameters(model) {
    const idle = model.moe ? numMoeLayers(model) * (model.moe.numExperts - model.moe.numActive) * expertParameters(model) : 0;
    return numParameters(model) - idle;
  }

  function linearParameters(model) {
    const count = parameters(model);
    return count.attention + count.mlp;
  }

  function weightBytes(model, dtype = "bf16") {
    if (!Object.hasOwn(WEIGHT_BITS, dtype))
      throw new RangeError(`there is no weight format '${dtype}'; choose one of ${Object.keys(WEIGHT_BITS).join(", ")}`);
    const bits = WEIGHT_BITS[dtype], linear = linearParameters(model);
    return (linear * bits + (numParameters(model) - linear) * Math.max(bits, 16)) / 8;
  }

  function kvBytes(model, numTokens, bytesPerElement = 2) {
    notNegative({ numTokens });
    positive({ bytesPerElement });
    const windowed = model.slidingWindow ? Math.min(numTokens, model.slidingWindow) : numTokens;
    const perLayer = kvElementsPerLayer(model) * bytesPerElement;
    return perLayer * ((model.numLayers - model.numWindowLayers) * numTokens + model.numWindowLayers * windowed);
  }

  function nextTokenKvBytes(model, context = 0, bytesPerElement = 2) {
    return kvBytes(model, context + 1, bytesPerElement) - kvBytes(model, context, bytesPerElement);
  }

  function kvElementsPerLayer(model) {
    return model.mla ? model.mla.kvLoraRank + model.mla.qkRopeHeadDim : 2 * model.numKvHeads * model.headDim;
  }

  function attentionParameters(model) {
    const { hiddenSize: hidden, numHeads: heads, mla } = model;
    if (mla) {
      const query = mla.qLoraRank * (hidden + heads * (mla.qkNopeHeadDim + mla.qkRopeHeadDim));
      const latent = hidden * (mla.kvLoraRank + mla.qkRopeHeadDim);
      return query + latent + heads * mla.kvLoraRank * (mla.qkNopeHeadDim + mla.vHeadDim) + heads * mla.vHeadDim * hidden;
    }
    const q = heads * model.headDim, kv = model.numKvHeads * model.headDim;
    const bias = model.attentionBias ? q + 2 * kv + hidden : 0;
    return hidden * (q + 2 * kv) + q * hidden + bias + (model.attentionSinks ? heads : 0);
  }

  function expertParameters(model) {
    if (!model.moe) throw new RangeError(`${model.id} has no experts`);
    const size = model.moe.expertSize, hidden = model.hiddenSize;
    return 3 * hidden * size + (model.moe.expertBias ? 2 * size + hidden : 0);
  }

  function headNorms(model) {
    if (model.mla) return model.mla.qLoraRank + model.mla.kvLoraRank;
    return model.qkNorm ? 2 * model.headDim : 0;
  }

  /* ---- operators.py ---- */

  function Step(numSeqs, newTokens, cachedTokens = 0, { logitTokens = 1, weightBits = 16, kvBits = 16, otherBits = 16 } = {}) {
    positive({ numSeqs, newTokens, weightBits, kvBits, otherBits });
    notNegative({ cachedTokens, logitTokens });
    if (logitTokens > newTokens) throw new RangeError(`logitTokens (${logitTokens}) cannot be more than newTokens (${newTokens})`);
    return { numSeqs, newTokens, cachedTokens, logitTokens, weightBits, kvBits, otherBits, tokens: numSeqs * newTokens };
  }

  const Operator = (name, flops, bytes) => ({ name, flops, bytes });

  function operators(model, step) {
    const { hiddenSize: hidden, vocabSize: vocab } = model;
    const rows = step.numSeqs * step.logitTokens;
    const head = ((rows ? hidden * vocab : 0) + rows * (hidden + vocab)) * step.otherBits;
    return [
      Operator("embedding", 0, (2 * step.tokens * hidden * step.otherBits) / 8),
      ...(model.mla ? mlaOperators(model, step) : attentionOperators(model, step)),
      ...mlpOperators(model, step),
      Operator("lm_head", 2 * rows * hidden * vocab, head / 8),
    ];
  }

  function total(work) {
    return Operator("total", sum(work.map((o) => o.flops)), sum(work.map((o) => o.bytes)));
  }

  function attended(step, window = null) {
    const first = step.cachedTokens + 1, last = step.cachedTokens + step.newTokens;
    if (window === null || last <= window) return Math.floor(((first + last) * step.newTokens) / 2);
    const growing = Math.max(0, window - first + 1);
    return Math.floor(((first + window) * growing) / 2) + (step.newTokens - growing) * window;
  }

  function linear(name, step, rows, inputs, outputs, layers, weights = inputs * outputs) {
    const moved = weights * step.weightBits + rows * (inputs + outputs) * step.otherBits;
    return Operator(name, 2 * rows * inputs * outputs * layers, (moved / 8) * layers);
  }

  function attentionOperators(model, step) {
    const q = model.numHeads * model.headDim, kv = model.numKvHeads * model.headDim, windowed = model.numWindowLayers;
    let flops = 0, moved = 0;
    for (const [layers, window] of [[model.numLayers - windowed, null], [windowed, model.slidingWindow]]) {
      flops += layers * step.numSeqs * 4 * q * attended(step, window);
      moved += layers * (step.numSeqs * visible(step, window) * 2 * kv * step.kvBits + 2 * step.tokens * q * step.otherBits);
    }
    return [
      linear("qkv_proj", step, step.tokens, model.hiddenSize, q + 2 * kv, model.numLayers),
      Operator("attention", flops, moved / 8),
      linear("o_proj", step, step.tokens, q, model.hiddenSize, model.numLayers),
    ];
  }

  function mlaOperators(model, step) {
    const { mla, numHeads: heads, numLayers: layers, hiddenSize: hidden } = model;
    const head = mla.qkNopeHeadDim + mla.qkRopeHeadDim, latent = kvElementsPerLayer(model);
    const absorbed = step.newTokens === 1, seen = step.numSeqs * visible(step, null);
    const width = absorbed ? latent + mla.kvLoraRank : head + mla.vHeadDim;
    const keys = seen * (absorbed ? latent * step.kvBits : heads * width * step.otherBits);
    const queries = step.tokens * heads * width * step.otherBits;
    return [
      linear("q_a_proj", step, step.tokens, hidden, mla.qLoraRank, layers),
      linear("q_b_proj", step, step.tokens, mla.qLoraRank, heads * head, layers),
      linear("kv_a_proj", step, step.tokens, hidden, latent, layers),
      linear("kv_b_proj", step, absorbed ? step.tokens : seen, mla.kvLoraRank, heads * (mla.qkNopeHeadDim + mla.vHeadDim), layers),
      Operator("attention", layers * step.numSeqs * 2 * heads * width * attended(step), (layers * (keys + queries)) / 8),
      linear("o_proj", step, step.tokens, heads * mla.vHeadDim, hidden, layers),
    ];
  }

  function mlpOperators(model, step) {
    const { hiddenSize: hidden, moe } = model, layers = numMoeLayers(model), dense = model.numLayers - layers;
    const found = dense ? gated(step, step.tokens, hidden, model.intermediateSize, dense, "") : [];
    if (!moe) return found;
    const moved = ((hidden * moe.numExperts + step.tokens * (hidden + moe.numExperts)) * step.otherBits) / 8;
    found.push(Operator("router", 2 * step.tokens * hidden * moe.numExperts * layers, moved * layers));
    if (moe.numShared) found.push(...gated(step, step.tokens, hidden, moe.numShared * moe.expertSize, layers, "shared_"));
    const read = expertsRead(model, step.tokens);
    found.push(...gated(step, step.tokens * moe.numActive, hidden, moe.expertSize, layers, "experts_", read));
    return found;
  }

  function gated(step, rows, hidden, size, layers, prefix, copies = 1) {
    return [
      linear(`${prefix}gate_up_proj`, step, rows, hidden, 2 * size, layers, copies * 2 * hidden * size),
      linear(`${prefix}down_proj`, step, rows, size, hidden, layers, copies * hidden * size),
    ];
  }

  function expertsRead(model, tokens) {
    if (!model.moe) throw new RangeError(`${model.id} has no experts`);
    return model.moe.numExperts * (1 - (1 - model.moe.numActive / model.moe.numExperts) ** tokens);
  }

  function visible(step, window) {
    const every = step.cachedTokens + step.newTokens;
    return window === null ? every : Math.min(every, window + step.newTokens - 1);
  }

  /* ---- roofline.py; a machine is {peakFlops, bandwidth} ---- */

  function ridgePoint(peakFlops, bandwidth) {
    positive({ peakFlops, bandwidth });
    return peakFlops / bandwidth;
  }

  function arithmeticIntensity(flops, numBytes) {
    notNegative({ flops });
    positive({ numBytes });
    return flops / numBytes;
  }

  function attainable(intensity, peakFlops, bandwidth) {
    positive({ intensity, peakFlops, bandwidth });
    return Math.min(peakFlops, intensity * bandwidth);
  }

  function boundOf(flops, numBytes, peakFlops, bandwidth) {
    return arithmeticIntensity(flops, numBytes) >= ridgePoint(peakFlops, bandwidth) ? "compute" : "memory";
  }

  const operatorSeconds = (operator, machine) => Math.max(operator.flops / machine.peakFlops, operator.bytes / machine.bandwidth);

  function totalSeconds(work, machine, { efficiency = 1 } = {}) {
    if (!(efficiency > 0 && efficiency <= 1))
      throw new RangeError(`efficiency is a share of the ceiling, above 0 and at most 1; got ${efficiency}`);
    return sum(work.map((operator) => operatorSeconds(operator, machine))) / efficiency;
  }

  function prefillSeconds(model, machine, tokens, { efficiency = 1, cached = 0, weightBits = 16 } = {}) {
    return totalSeconds(operators(model, Step(1, tokens, cached, { weightBits })), machine, { efficiency });
  }

  function decodeSeconds(model, machine, context, { numSeqs = 1, efficiency = 1, weightBits = 16 } = {}) {
    return totalSeconds(operators(model, Step(numSeqs, 1, context, { weightBits })), machine, { efficiency });
  }

  function decodeCeiling(weightBytes, bandwidth, kvBytes = 0) {
    positive({ weightBytes, bandwidth });
    notNegative({ kvBytes });
    return bandwidth / (weightBytes + kvBytes);
  }

  /* ---- cost.py ---- */

  const PER = 1e6;

  function costPerMillion(pricePerHour, tokensPerS) {
    positive({ pricePerHour, tokensPerS });
    return (pricePerHour / (tokensPerS * 3600)) * PER;
  }

  function requestCost(inputTokens, cachedTokens, outputTokens, { inputPrice, cachedPrice, outputPrice }) {
    notNegative({ inputTokens, cachedTokens, outputTokens, inputPrice, cachedPrice, outputPrice });
    if (cachedTokens > inputTokens)
      throw new RangeError(`cachedTokens (${cachedTokens}) are a part of inputTokens (${inputTokens}) and cannot be more`);
    return ((inputTokens - cachedTokens) * inputPrice + cachedTokens * cachedPrice + outputTokens * outputPrice) / PER;
  }

  function botCost(numRequests, promptTokens, prefixTokens, answerTokens, { inputPrice, cachedPrice, outputPrice, reasoningTokens = 0, hitRate = 1 }) {
    notNegative({ numRequests, prefixTokens, answerTokens, reasoningTokens });
    if (prefixTokens > promptTokens)
      throw new RangeError(`prefixTokens (${prefixTokens}) are a part of promptTokens (${promptTokens}) and cannot be more`);
    if (!(hitRate >= 0 && hitRate <= 1)) throw new RangeError(`hitRate is a share between 0 and 1, got ${hitRate}`);
    const prices = { inputPrice, cachedPrice, outputPrice };
    return numRequests * requestCost(promptTokens, prefixTokens * hitRate, answerTokens + reasoningTokens, prices);
  }

  const course = (window.course = window.course || {});
  course.core = {
    WEIGHT_BITS, kvBytesPerToken, kvTokenBudget, maxRequests, parameters, numParameters, activeParameters, linearParameters,
    weightBytes, kvBytes, nextTokenKvBytes, kvElementsPerLayer, attentionParameters, expertParameters,
    Step, operators, total, attended, expertsRead,
    ridgePoint, arithmeticIntensity, attainable, boundOf, operatorSeconds, totalSeconds, prefillSeconds, decodeSeconds, decodeCeiling,
    costPerMillion, requestCost, botCost,
  };
})();
