/* Attention path explorer: solver and views in one module, no dependencies.
 *
 * The solver minimises the same action, in the same coordinates, as attnpaths.order_parameter:
 *   U_l = B_l B_l^T,  B_l = s_l (1_{H_l} kron B_{l+1}) A_l,  B_{L+1} = s_a A_a,  A lower triangular,
 *   entropy = sum_l N_l (|A_l|^2 - 2 sum log diag A_l - n_l log s_l^2)  (and the readout alike),
 *   energy  = logdet(K + T) + y^T (K + T)^-1 y,  K = (s_0^2 / Pi) sum U_ab C_ab.
 * The views draw with SVG and one canvas, take their colours from CSS variables, and read and write
 * a model with get, set, on, off and save_changes: Jupyter's, or a stand-in in a static page.
 */

// ---------------------------------------------------------------------------------------- data

/** Typed array over what a widget state holds: a DataView (Jupyter) or base64 text (static page). */
function decode(value, Type) {
  if (value === null || value === undefined) return new Type(0);
  let bytes;
  if (typeof value === "string") {
    const text = atob(value);
    bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  } else if (ArrayBuffer.isView(value)) {
    bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  } else {
    bytes = new Uint8Array(value);
  }
  return new Type(bytes.slice().buffer); // a copy, so that the elements are aligned
}

/** What integer steps stand for: each row has the same scale. */
function scaled(steps, scale) {
  const values = new Float32Array(steps.length);
  for (let i = 0; i < values.length; i++) values[i] = steps[i] * scale[i % scale.length];
  return values;
}

/** One task: path inputs, labels and architecture, decoded once; see Task in explorer.py. */
export class Task {
  constructor(spec) {
    Object.assign(this, spec);
    this.paths = spec.heads.reduce((a, b) => a * b, 1);
    this.y = Float64Array.from(decode(spec.labels, Int8Array));
    this.P = this.y.length;
    const scale = decode(spec.train_scale, Float32Array), bytes = decode(spec.train, Uint8Array);
    this.D = scale.length / this.paths;
    const threes = Int32Array.from({ length: bytes.length / 3 }, // 24 bits, the last of them the sign
      (_, i) => ((bytes[3 * i] << 8) | (bytes[3 * i + 1] << 16) | (bytes[3 * i + 2] << 24)) >> 8);
    this.train = scaled(threes, scale);
    this.test = scaled(decode(spec.test, Int16Array), decode(spec.test_scale, Float32Array));
    this.yTest = decode(spec.test_labels, Int8Array);
    this.triangles = new Map();
  }

  /** Triangles sum_j x_a[mu, j] x_b[nu, j] / N0 over a feature range, symmetrised over (a, b). */
  pairTriangle(a, b, from, to) {
    const key = `${a},${b},${from}`;
    const known = this.triangles.get(key);
    if (known) return known;
    const { P, D, paths, train, features } = this;
    const out = new Float64Array((P * (P + 1)) / 2);
    const at = (mu, path) => (mu * paths + path) * D + from;
    let k = 0;
    for (let mu = 0; mu < P; mu++) {
      for (let nu = 0; nu <= mu; nu++) {
        let sum = dotAt(train, at(mu, a), train, at(nu, b), to - from);
        if (a !== b) sum += dotAt(train, at(nu, a), train, at(mu, b), to - from);
        out[k++] = sum / features;
      }
    }
    this.triangles.set(key, out);
    return out;
  }
}

// ------------------------------------------------------------------------------ linear algebra
// Symmetric and lower triangular matrices are packed by rows: entry (i, j <= i) at i (i + 1) / 2 + j.

/** Cholesky factor in place; returns the log-determinant, or NaN if not positive definite. */
function cholesky(a, n) {
  let logdet = 0;
  for (let i = 0, ri = 0; i < n; ri += ++i) {
    for (let j = 0, rj = 0; j <= i; rj += ++j) {
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0, k = 0;
      for (; k + 3 < j; k += 4) { // four sums: no add waits for the one before
        s0 += a[ri + k] * a[rj + k];
        s1 += a[ri + k + 1] * a[rj + k + 1];
        s2 += a[ri + k + 2] * a[rj + k + 2];
        s3 += a[ri + k + 3] * a[rj + k + 3];
      }
      for (; k < j; k++) s0 += a[ri + k] * a[rj + k];
      const rest = a[ri + j] - (s0 + s1 + (s2 + s3));
      if (j < i) a[ri + j] = rest / a[rj + j];
      else {
        if (!(rest > 0)) return NaN;
        a[ri + j] = Math.sqrt(rest);
        logdet += Math.log(rest);
      }
    }
  }
  return logdet;
}

/** Inverse (into `out`) of the matrix whose packed Cholesky factor is `l`; `l` becomes its inverse. */
function inverseFromCholesky(l, out, row, n) {
  for (let i = 0, ri = 0; i < n; ri += ++i) {
    row.fill(0, 0, i + 4);
    let k = 0, rk = 0;
    for (; k + 3 < i; rk += 4 * k + 10, k += 4) { // four rows of the inverse at once
      const r1 = rk + k + 1, r2 = r1 + k + 2, r3 = r2 + k + 3;
      const f0 = l[ri + k], f1 = l[ri + k + 1], f2 = l[ri + k + 2], f3 = l[ri + k + 3];
      for (let j = 0; j <= k; j++) row[j] += f0 * l[rk + j] + f1 * l[r1 + j] + (f2 * l[r2 + j] + f3 * l[r3 + j]);
      row[k + 1] += f1 * l[r1 + k + 1] + f2 * l[r2 + k + 1] + f3 * l[r3 + k + 1];
      row[k + 2] += f2 * l[r2 + k + 2] + f3 * l[r3 + k + 2];
      row[k + 3] += f3 * l[r3 + k + 3];
    }
    for (; k < i; rk += ++k) {
      const f = l[ri + k];
      for (let j = 0; j <= k; j++) row[j] += f * l[rk + j];
    }
    const d = 1 / l[ri + i];
    for (let j = 0; j < i; j++) l[ri + j] = -row[j] * d;
    l[ri + i] = d;
  }
  for (let i = 0, ri = 0; i < n; ri += ++i) { // out = l^T l
    row.fill(0, 0, i + 1);
    let k = i, rk = ri;
    for (; k + 3 < n; rk += 4 * k + 10, k += 4) {
      const r1 = rk + k + 1, r2 = r1 + k + 2, r3 = r2 + k + 3;
      const f0 = l[rk + i], f1 = l[r1 + i], f2 = l[r2 + i], f3 = l[r3 + i];
      for (let j = 0; j <= i; j++) row[j] += f0 * l[rk + j] + f1 * l[r1 + j] + (f2 * l[r2 + j] + f3 * l[r3 + j]);
    }
    for (; k < n; rk += ++k) {
      const f = l[rk + i];
      for (let j = 0; j <= i; j++) row[j] += f * l[rk + j];
    }
    for (let j = 0; j <= i; j++) out[ri + j] = row[j];
  }
}

/** sum_k a[p + k] b[q + k] over n terms, in four sums. */
function dotAt(a, p, b, q, n) {
  let s0 = 0, s1 = 0, s2 = 0, s3 = 0, k = 0;
  for (; k + 3 < n; k += 4) {
    s0 += a[p + k] * b[q + k];
    s1 += a[p + k + 1] * b[q + k + 1];
    s2 += a[p + k + 2] * b[q + k + 2];
    s3 += a[p + k + 3] * b[q + k + 3];
  }
  for (; k < n; k++) s0 += a[p + k] * b[q + k];
  return s0 + s1 + (s2 + s3);
}

const dot = (a, b) => dotAt(a, 0, b, 0, a.length);

/** Eigenvalues of a packed symmetric matrix, largest first, and |v . y| / |y| of their vectors v.
 *
 * Householder reduction, then implicit QL; instead of all vectors only y is carried through the
 * rotations, which is what an overlap needs. */
export function alignment(packed, y) {
  const n = y.length;
  const a = new Float64Array(n * n);
  for (let i = 0, k = 0; i < n; i++) for (let j = 0; j <= i; j++) a[i * n + j] = a[j * n + i] = packed[k++];
  const z = Float64Array.from(y), d = new Float64Array(n), e = new Float64Array(n);
  const v = new Float64Array(n), p = new Float64Array(n);
  for (let c = 0; c < n - 2; c++) {
    let norm = 0;
    for (let i = c + 1; i < n; i++) norm += (v[i] = a[i * n + c]) ** 2;
    norm = Math.sqrt(norm);
    if (norm === 0) continue;
    const alpha = v[c + 1] > 0 ? -norm : norm;
    v[c + 1] -= alpha;
    let vv = 0;
    for (let i = c + 1; i < n; i++) vv += v[i] * v[i];
    const beta = 2 / vv;
    let pv = 0, zv = 0;
    for (let i = c + 1; i < n; i++) {
      let s = 0;
      for (let j = c + 1, at = i * n; j < n; j++) s += a[at + j] * v[j];
      p[i] = beta * s;
      pv += p[i] * v[i];
      zv += z[i] * v[i];
    }
    for (let i = c + 1; i < n; i++) p[i] -= 0.5 * beta * pv * v[i];
    for (let i = c + 1; i < n; i++) {
      for (let j = c + 1, at = i * n; j < n; j++) a[at + j] -= v[i] * p[j] + p[i] * v[j];
      z[i] -= beta * zv * v[i];
    }
    a[(c + 1) * n + c] = alpha;
  }
  for (let i = 0; i < n; i++) d[i] = a[i * n + i];
  for (let i = 0; i + 1 < n; i++) e[i] = a[(i + 1) * n + i];
  for (let l = 0; l < n; l++) {
    for (let turns = 0; turns < 60; turns++) {
      let m = l;
      for (; m < n - 1; m++) if (Math.abs(e[m]) <= 2.3e-16 * (Math.abs(d[m]) + Math.abs(d[m + 1]))) break;
      if (m === l) break;
      let g = (d[l + 1] - d[l]) / (2 * e[l]), r = Math.hypot(g, 1);
      g = d[m] - d[l] + e[l] / (g + (g >= 0 ? r : -r));
      let s = 1, c = 1, shift = 0, i = m - 1;
      for (; i >= l; i--) {
        const f = s * e[i], b = c * e[i];
        r = Math.hypot(f, g);
        e[i + 1] = r;
        if (r === 0) { d[i + 1] -= shift; e[m] = 0; break; }
        s = f / r;
        c = g / r;
        g = d[i + 1] - shift;
        r = (d[i] - g) * s + 2 * c * b;
        shift = s * r;
        d[i + 1] = g + shift;
        g = c * r - b;
        const w = z[i + 1];
        z[i + 1] = s * z[i] + c * w;
        z[i] = c * z[i] - s * w;
      }
      if (r === 0 && i >= l) continue;
      d[l] -= shift;
      e[l] = g;
      e[m] = 0;
    }
  }
  const order = Array.from(d.keys()).sort((i, j) => d[j] - d[i]);
  const size = Math.sqrt(dot(y, y));
  return { values: order.map((i) => d[i]), overlaps: order.map((i) => Math.abs(z[i]) / size) };
}

// -------------------------------------------------------------------------------------- theory

/** A task with some heads on and a noise strength: everything the action needs. */
export class Problem {
  constructor(task, headsOn, noise = 1) {
    this.task = task;
    this.noise = noise;
    this.heads = headsOn.map((layer) => layer.filter(Boolean).length);
    if (this.heads.some((count) => count === 0)) throw new Error("every layer needs a head that is on");
    this.active = []; // indices of the paths all of whose heads are on, in C order
    for (let path = 0; path < task.paths; path++) {
      let rest = path, on = true;
      for (let l = task.heads.length - 1; l >= 0; l--) {
        on = on && headsOn[l][rest % task.heads[l]];
        rest = Math.floor(rest / task.heads[l]);
      }
      if (on) this.active.push(path);
    }
    this.n = this.active.length;
    const split = task.noise_from ?? task.D;
    const factor = task.variances[0] / this.n;
    this.pairs = []; // (a, b <= a) with K = sum over pairs of U_ab * triangle
    for (let a = 0; a < this.n; a++) {
      for (let b = 0; b <= a; b++) {
        const fixed = task.pairTriangle(this.active[a], this.active[b], 0, split);
        const triangle = fixed.map((value) => value * factor);
        if (split < task.D) {
          const scaled = task.pairTriangle(this.active[a], this.active[b], split, task.D);
          const weight = factor * noise * noise;
          for (let k = 0; k < triangle.length; k++) triangle[k] += weight * scaled[k];
        }
        this.pairs.push(triangle);
      }
    }
    const P = task.P;
    this.factor = new Float64Array((P * (P + 1)) / 2);
    this.inverse = new Float64Array((P * (P + 1)) / 2);
    this.row = new Float64Array(P + 4);
    this.alpha = new Float64Array(P);
    // sizes n_l = H_l H_{l+1} ... H_L of the order parameters, then 1 for the readout
    this.sizes = this.heads.map((_, l) => this.heads.slice(l).reduce((a, b) => a * b, 1)).concat([1]);
  }

  /** Packed kernel (without temperature) of U given as a full n x n array. */
  kernel(U, out = new Float64Array(this.factor.length)) {
    const n = this.n;
    out.fill(0);
    for (let a = 0, k = 0; a < n; a++) {
      for (let b = 0; b <= a; b++, k++) {
        const u = U[a * n + b], c = this.pairs[k];
        if (u !== 0) for (let i = 0; i < out.length; i++) out[i] += u * c[i];
      }
    }
    return out;
  }

  /** Energy at U; fills alpha = (K + T)^-1 y and, if asked, the symmetric gradient dE/dU. */
  energy(U, temperature, gradient) {
    const { P, y } = this.task, { factor, inverse, alpha, n } = this;
    this.kernel(U, factor);
    for (let i = 0, k = 0; i < P; k += ++i) factor[k + i] += temperature;
    const logdet = cholesky(factor, P);
    if (Number.isNaN(logdet)) return NaN;
    alpha.set(y);
    if (!gradient) {
      for (let i = 0, r = 0; i < P; r += ++i) {
        for (let j = 0; j < i; j++) alpha[i] -= factor[r + j] * alpha[j];
        alpha[i] /= factor[r + i];
      }
      return logdet + dot(alpha, alpha); // here alpha = L^-1 y
    }
    inverseFromCholesky(factor, inverse, this.row, P);
    alpha.fill(0);
    for (let i = 0, k = 0; i < P; i++) {
      for (let j = 0; j < i; j++, k++) {
        alpha[i] += inverse[k] * y[j];
        alpha[j] += inverse[k] * y[i];
      }
      alpha[i] += inverse[k++] * y[i];
    }
    // G = (K + T)^-1 - alpha alpha^T, off-diagonal entries counted twice since triangles are kept
    for (let i = 0, k = 0; i < P; i++) {
      for (let j = 0; j < i; j++, k++) inverse[k] = 2 * (inverse[k] - alpha[i] * alpha[j]);
      inverse[k] -= alpha[i] * alpha[i];
      k++;
    }
    for (let a = 0, k = 0; a < n; a++) {
      for (let b = 0; b <= a; b++, k++) {
        const value = dot(inverse, this.pairs[k]);
        gradient[a * n + b] = gradient[b * n + a] = a === b ? value : value / 2;
      }
    }
    return logdet + dot(y, alpha);
  }

  /** Test accuracy and means of the predictor with order parameter U and weights alpha. */
  predict(U, alpha) {
    const { P, D, paths, train, test, yTest, features, variances } = this.task;
    const { n, active } = this, split = this.task.noise_from ?? D;
    const moved = new Float64Array(n * D); // X_b^T alpha, then the weights of each path's input
    for (let mu = 0; mu < P; mu++) {
      for (let b = 0; b < n; b++) {
        const at = (mu * paths + active[b]) * D, f = alpha[mu];
        for (let j = 0; j < D; j++) moved[b * D + j] += f * train[at + j];
      }
    }
    const weights = new Float64Array(paths * D), scale = variances[0] / (n * features);
    for (let a = 0; a < n; a++) {
      for (let b = 0; b < n; b++) {
        const f = U[a * n + b] * scale;
        for (let j = 0; j < D; j++) weights[active[a] * D + j] += f * moved[b * D + j];
      }
      // both the training and the test side of a noise feature carry the noise strength
      for (let j = split; j < D; j++) weights[active[a] * D + j] *= this.noise * this.noise;
    }
    const row = paths * D, means = new Float64Array(yTest.length);
    let right = 0;
    for (let i = 0; i < means.length; i++) {
      means[i] = dotAt(weights, 0, test, i * row, row);
      if (means[i] * yTest[i] > 0) right++;
    }
    return { accuracy: means.length ? right / means.length : NaN, means };
  }
}

/** Energy plus entropy, and its gradient, in the coordinates x of the module's head comment. */
class Action {
  constructor(problem, widths, temperature) {
    this.problem = problem;
    this.widths = widths;
    this.temperature = temperature;
    this.sizes = problem.sizes;
    const variances = problem.task.variances;
    this.s = this.sizes.map((_, l) => Math.sqrt(variances[l + 1]));
    this.length = this.sizes.reduce((sum, n) => sum + (n * (n + 1)) / 2, 0);
    this.A = this.sizes.map((n) => new Float64Array(n * n));
    this.B = this.sizes.map((n) => new Float64Array(n * n));
    this.dB = this.sizes.map((n) => new Float64Array(n * n));
    this.U = new Float64Array(problem.n * problem.n);
    this.dU = new Float64Array(problem.n * problem.n);
    this.evaluations = 0;
  }

  /** Fill A, B and U from x. */
  place(x) {
    const { sizes, widths, A, B, s } = this, last = sizes.length - 1;
    let at = 0;
    sizes.forEach((n, l) => {
      const off = 1 / Math.sqrt(2 * widths[l]), on = 1 / Math.sqrt(4 * widths[l]);
      for (let i = 0; i < n; i++) {
        for (let j = 0; j < i; j++) A[l][i * n + j] = x[at++] * off;
        A[l][i * n + i] = Math.exp(x[at++] * on);
      }
    });
    for (let l = last; l >= 0; l--) {
      const n = sizes[l], m = l < last ? sizes[l + 1] : 1;
      for (let i = 0; i < n; i++) {
        const block = Math.floor(i / m) * m, r = i - block;
        for (let j = 0; j <= i; j++) {
          let sum = 0;
          if (l === last) sum = A[l][i * n + j];
          else for (let k = Math.max(j - block, 0); k <= r; k++) sum += B[l + 1][r * m + k] * A[l][(block + k) * n + j];
          B[l][i * n + j] = s[l] * sum;
        }
      }
    }
    square(B[0], sizes[0], this.U);
  }

  /** x of given factors A. */
  coordinates(A) {
    const x = new Float64Array(this.length);
    let at = 0;
    this.sizes.forEach((n, l) => {
      const off = Math.sqrt(2 * this.widths[l]), on = Math.sqrt(4 * this.widths[l]);
      for (let i = 0; i < n; i++) {
        for (let j = 0; j < i; j++) x[at++] = A[l][i * n + j] * off;
        x[at++] = Math.log(A[l][i * n + i]) * on;
      }
    });
    return x;
  }

  entropy() {
    return this.sizes.reduce((total, n, l) => {
      let sum = -n * Math.log(this.s[l] ** 2);
      for (let i = 0; i < n; i++) {
        for (let j = 0; j <= i; j++) sum += this.A[l][i * n + j] ** 2;
        sum -= 2 * Math.log(this.A[l][i * n + i]);
      }
      return total + this.widths[l] * sum;
    }, 0);
  }

  /** Value at x; the gradient goes into g. */
  evaluate(x, g) {
    this.evaluations++;
    this.place(x);
    const { sizes, widths, A, B, dB, s, dU, U } = this, last = sizes.length - 1;
    this.energyValue = this.problem.energy(U, this.temperature, dU);
    if (Number.isNaN(this.energyValue)) return NaN;
    this.entropyValue = this.entropy();
    const n0 = sizes[0];
    for (let i = 0; i < n0; i++) {
      for (let j = 0; j < n0; j++) {
        let sum = 0;
        for (let k = j; k < n0; k++) sum += dU[i * n0 + k] * B[0][k * n0 + j];
        dB[0][i * n0 + j] = 2 * sum;
      }
    }
    let at = 0;
    for (let l = 0; l <= last; l++) {
      const n = sizes[l], m = l < last ? sizes[l + 1] : 1;
      const off = 1 / Math.sqrt(2 * widths[l]), on = 1 / Math.sqrt(4 * widths[l]);
      for (let i = 0; i < n; i++) {
        const block = Math.floor(i / m) * m, r = i - block;
        for (let j = 0; j <= i; j++) {
          let sum = 0; // dE/dA = s (1 kron B_{l+1})^T dE/dB
          if (l === last) sum = dB[l][i * n + j];
          else for (let k = r; k < m; k++) sum += B[l + 1][k * m + r] * dB[l][(block + k) * n + j];
          const a = A[l][i * n + j];
          const slope = s[l] * sum + 2 * widths[l] * (i === j ? a - 1 / a : a);
          g[at++] = i === j ? slope * a * on : slope * off;
        }
      }
      if (l === last) break;
      const next = dB[l + 1]; // dE/dB_{l+1} = s * sum over the diagonal blocks of dE/dB_l A_l^T
      next.fill(0);
      for (let block = 0; block < n; block += m) {
        for (let i = 0; i < m; i++) {
          for (let k = 0; k <= i; k++) {
            let sum = 0;
            for (let j = 0; j <= block + k; j++) sum += dB[l][(block + i) * n + j] * A[l][(block + k) * n + j];
            next[i * m + k] += s[l] * sum;
          }
        }
      }
    }
    return this.energyValue + this.entropyValue;
  }
}

function square(B, n, out = new Float64Array(n * n)) {
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = 0;
      for (let k = 0; k <= j; k++) sum += B[i * n + k] * B[j * n + k];
      out[i * n + j] = out[j * n + i] = sum;
    }
  }
  return out;
}

const largest = (v) => v.reduce((m, value) => Math.max(m, Math.abs(value)), 0);

/** BFGS with a weak Wolfe search. `inverse`, the inverse Hessian, is updated in place: handed to the next
 * solve nearby it saves most of that solve's evaluations. In these coordinates it starts as the identity. */
function minimise(action, x, inverse, tol, limit) {
  const n = x.length, longest = Math.sqrt(4 * Math.min(...action.widths)); // one unit of log A
  let g = new Float64Array(n), trial = new Float64Array(n), gTrial = new Float64Array(n);
  let f = action.evaluate(x, g), fresh = false;
  const d = new Float64Array(n), v = new Float64Array(n), step = new Float64Array(n), change = new Float64Array(n);
  while (largest(g) > tol && action.evaluations < limit) {
    for (let i = 0; i < n; i++) d[i] = -dotAt(inverse, i * n, g, 0, n);
    const slope = dot(d, g);
    let t = Math.min(1, longest / largest(d)), low = 0, high = Infinity, value = NaN, found = false;
    for (let tries = 0; slope < 0 && !found && tries < 30 && action.evaluations < limit; tries++) {
      for (let i = 0; i < n; i++) trial[i] = x[i] + t * d[i];
      value = action.evaluate(trial, gTrial);
      if (Math.abs(value - f) <= 1e-13 * Math.abs(f) && largest(gTrial) < largest(g)) {
        found = true; // the value's last digits are noise here: the gradient alone decides
      } else if (!(value <= f + 1e-4 * t * slope)) high = t;
      else if (dot(d, gTrial) < 0.9 * slope) low = t;
      else found = true;
      if (!found) t = high < Infinity ? (low + high) / 2 : 2 * t;
    }
    if (!found) { // a stale inverse Hessian is forgotten once
      if (fresh) break;
      fresh = true;
      identity(inverse, n);
      continue;
    }
    for (let i = 0; i < n; i++) {
      step[i] = trial[i] - x[i];
      change[i] = gTrial[i] - g[i];
    }
    const sq = dot(step, change);
    if (sq > 0) {
      for (let i = 0; i < n; i++) v[i] = dotAt(inverse, i * n, change, 0, n);
      const c = (1 + dot(change, v) / sq) / sq;
      for (let i = 0, k = 0; i < n; i++) {
        for (let j = 0; j < n; j++) inverse[k++] += c * step[i] * step[j] - (v[i] * step[j] + step[i] * v[j]) / sq;
      }
    }
    [x, trial] = [trial, x];
    [g, gTrial] = [gTrial, g];
    f = value;
    fresh = false;
  }
  action.evaluate(x, g);
  return largest(g);
}

function identity(matrix, n) {
  matrix.fill(0);
  for (let i = 0; i < n; i++) matrix[i * n + i] = 1;
  return matrix;
}

/** Minimise the action: { U, layers, readout, action, energy, entropy, gradient, accuracy, ... }.
 *
 * `width` is one number or [N_1, ..., N_L, N_a]. `start` is an earlier result on the same heads, whose
 * factors and inverse Hessian are carried over; without it the search starts from the Gaussian process
 * point, where all A are 1. `gradient` is the largest entry of the gradient of energy + entropy left. */
export function solve(problem, width, temperature, { start = null, tol = 1e-7, limit = 2000 } = {}) {
  const began = now();
  const widths = typeof width === "number" ? problem.sizes.map(() => width) : width;
  const action = new Action(problem, widths, temperature), n = action.length;
  const usable = start !== null && start.A.length === action.A.length
    && start.A.every((A, l) => A.length === action.A[l].length);
  const inverse = usable ? start.inverse.slice() : identity(new Float64Array(n * n), n);
  const gradient = minimise(action, usable ? action.coordinates(start.A) : new Float64Array(n), inverse, tol, limit);
  const top = Math.max(...widths);
  return {
    U: action.U,
    layers: action.B.slice(0, -1).map((B, l) => square(B, action.sizes[l])),
    readout: action.B[action.B.length - 1][0] ** 2,
    action: (action.energyValue + action.entropyValue) / top,
    energy: action.energyValue / top,
    entropy: action.entropyValue / top,
    gradient,
    evaluations: action.evaluations,
    ...problem.predict(action.U, problem.alpha),
    A: action.A,
    inverse,
    milliseconds: now() - began,
  };
}

/** The limit of infinite width: U = (s_a s_L ... s_1)^2 times the identity. */
export function gaussianProcess(problem, temperature) {
  const n = problem.n, U = new Float64Array(n * n);
  const value = problem.task.variances.slice(1).reduce((a, b) => a * b, 1);
  for (let i = 0; i < n; i++) U[i * n + i] = value;
  const gradient = new Float64Array(n * n);
  problem.energy(U, temperature, gradient);
  return { U, ...problem.predict(U, problem.alpha) };
}

/** Head scores: sum of |U| over path pairs in which the head takes part, largest = 1; off heads 0. */
export function headScores(problem, headsOn, U) {
  const { heads } = problem.task, n = problem.n;
  const headOf = (path, layer) => Math.floor(path / heads.slice(layer + 1).reduce((a, b) => a * b, 1)) % heads[layer];
  const scores = headsOn.map((layer, l) => layer.map((on, h) => {
    if (!on) return 0;
    let sum = 0;
    for (let a = 0; a < n; a++) {
      for (let b = 0; b < n; b++) {
        if (headOf(problem.active[a], l) === h || headOf(problem.active[b], l) === h) sum += Math.abs(U[a * n + b]);
      }
    }
    return sum;
  }));
  const top = Math.max(...scores.flat());
  return scores.map((layer) => layer.map((value) => value / top));
}

const now = () => globalThis.performance.now();

// --------------------------------------------------------------------------------------- drawing

const SVG = "http://www.w3.org/2000/svg";

function element(parent, tag, attributes = {}, text = null) {
  const node = parent?.namespaceURI === SVG || tag === "svg" ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  if (text !== null) node.textContent = text;
  parent?.appendChild(node);
  return node;
}

/** A number for people: significant digits, a real minus sign, no exponent unless it helps. */
function show(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e-4 && size < 1e5
    ? value.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size))))
    : value.toExponential(digits - 1).replace(/e\+?(.*)/, (_, power) => ` × 10${power.replace(/./g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)])}`);
  return text.replace(/-/g, "−");
}

const percent = (value) => `${(100 * value).toFixed(1)} %`;
const integer = (value) => Math.round(value).toLocaleString("en-US");
const widthText = (value) => (Number.isInteger(value) ? integer(value) : show(value, 4));
/** Temperatures as they are typed: 0.01, 0.75, 1.5. */
const plain = (value) => String(Number(value.toPrecision(6)));

function rgb(text) {
  const value = parseInt(text.trim().slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** Colour at position 0..1 of a list of colours. */
function ramp(colours, position) {
  const at = Math.min(Math.max(position, 0), 1) * (colours.length - 1), i = Math.min(Math.floor(at), colours.length - 2), f = at - i;
  return colours[i].map((value, channel) => Math.round(value + f * (colours[i + 1][channel] - value)));
}

/** Paint rows x columns colours onto a canvas, one pixel a cell; CSS enlarges it without smoothing. */
function paint(canvas, rows, columns, colour) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  for (let i = 0, k = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++, k += 4) {
      const [r, g, b] = colour(i, j);
      image.data[k] = r;
      image.data[k + 1] = g;
      image.data[k + 2] = b;
      image.data[k + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
}

/** Axes in a fresh SVG; returns the drawing and its scales. */
function axes(host, { width, height, left = 42, right = 22, top = 8, bottom = 36, x, y, label, unit = 1 }) {
  const svg = element(host, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const scale = (axis, from, to) => (value) => {
    const f = axis.log ? Math.log : (v) => v;
    return from + ((f(value) - f(axis.from)) / (f(axis.to) - f(axis.from))) * (to - from);
  };
  const px = scale(x, left, width - right), py = scale(y, height - bottom, top);
  for (const tick of x.ticks) {
    element(svg, "line", { class: "ax-grid", x1: px(tick), x2: px(tick), y1: top, y2: height - bottom });
    element(svg, "text", { class: "ax-tick", x: px(tick), y: height - bottom + 15, "text-anchor": "middle" }, (x.text ?? plain)(tick));
  }
  for (const tick of y.ticks) {
    element(svg, "line", { class: "ax-grid", x1: left, x2: width - right, y1: py(tick), y2: py(tick) });
    element(svg, "text", { class: "ax-tick", x: left - 6, y: py(tick) + 4, "text-anchor": "end" }, (y.text ?? plain)(tick));
  }
  element(svg, "line", { class: "ax-axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom });
  element(svg, "text", { class: "ax-label", x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, x.name);
  const middle = (top + height - bottom) / 2;
  element(svg, "text", { class: "ax-label", x: 11, y: middle, transform: `rotate(-90 11 ${middle})`, "text-anchor": "middle" }, y.name);
  return { svg, px, py, left, right: width - right, top, bottom: height - bottom };
}

const polyline = (points) => points.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");

/** Powers of ten (and of two or five where those are few) inside a range. */
function decades(from, to) {
  const ticks = [];
  for (let k = Math.ceil(Math.log10(from) - 1e-9); k <= Math.log10(to) + 1e-9; k++) ticks.push(10 ** k);
  if (ticks.length >= 2) return ticks;
  const finer = [];
  for (let k = Math.floor(Math.log10(from)); k <= Math.log10(to); k++) for (const m of [1, 2, 5]) finer.push(m * 10 ** k);
  return finer.filter((tick) => tick >= from * (1 - 1e-9) && tick <= to * (1 + 1e-9));
}

/** Round ticks of a linear range. */
function steps(from, to, count) {
  const raw = (to - from) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power, ticks = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + 1e-9 * step; k++) ticks.push(k * step);
  return ticks;
}

/** Line segments of a level set on a grid of values (marching squares); positions in grid units. */
function contour(values, rows, columns, level) {
  let path = "";
  const cross = (i, j, u, v) => {
    const a = values[i * columns + j], b = values[u * columns + v], f = (level - a) / (b - a);
    return `${(j + f * (v - j)).toFixed(3)} ${(i + f * (u - i)).toFixed(3)}`;
  };
  for (let i = 0; i + 1 < rows; i++) {
    for (let j = 0; j + 1 < columns; j++) {
      const corners = [[i, j], [i, j + 1], [i + 1, j + 1], [i + 1, j]];
      const cuts = [];
      for (let k = 0; k < 4; k++) {
        const [a, b] = corners[k], [c, d] = corners[(k + 1) % 4];
        if (values[a * columns + b] < level !== values[c * columns + d] < level) cuts.push(cross(a, b, c, d));
      }
      for (let k = 0; k + 1 < cuts.length; k += 2) path += `M${cuts[k]}L${cuts[k + 1]}`;
    }
  }
  return path;
}

// ----------------------------------------------------------------------------------------- view

/** Whether the page is dark: the theme of a pydata book, JupyterLab or VS Code decides, else the system. */
function dark() {
  const { theme } = document.documentElement.dataset, { jpThemeLight } = document.body.dataset;
  if (theme === "dark" || theme === "light") return theme === "dark";
  if (jpThemeLight !== undefined) return jpThemeLight === "false";
  const editor = document.body.className.match(/vscode-(dark|light|high-contrast)/);
  return editor ? editor[1] !== "light" : matchMedia("(prefers-color-scheme: dark)").matches;
}

const PANELS = {
  order_parameter: "Order parameter <i>U</i>",
  accuracy: "Test accuracy against width",
  landscape: "Landscape of the action",
  components: "Kernel components and the labels",
  kernel: "Kernel of the training examples",
};

let explorers = 0;

class ExplorerView {
  constructor(model, host) {
    this.model = model;
    this.id = `attnpaths-${++explorers}`;
    this.tasks = new Map();
    this.problems = new Map();
    this.curves = new Map();
    this.released = [];
    this.last = null;
    this.root = element(host, "div", { class: "attnpaths", role: "group", "aria-label": "Attention path explorer", "data-state": "busy" });
    const palette = model.get("palette") ?? {};
    for (const [name, colour] of Object.entries(palette)) this.root.style.setProperty(`--ax-base-${name}`, colour);
    this.build();
    for (const name of ["task", "width", "temperature", "noise", "heads_on"]) this.listen(model, `change:${name}`, () => this.request());
    this.listen(model, "change:views", () => { this.build(); this.request(); });
    this.watch();
    this.update();
  }

  listen(target, event, action) {
    target.on(event, action);
    this.released.push(() => target.off(event, action));
  }

  /** Redraw on a new size or a new colour scheme. */
  watch() {
    let width = 0;
    const size = new ResizeObserver(() => {
      const next = this.root.clientWidth;
      if (next && next !== width) {
        width = next;
        this.redraw();
      }
    });
    size.observe(this.root);
    const theme = new MutationObserver(() => this.redraw());
    for (const node of [document.documentElement, document.body]) {
      theme.observe(node, { attributes: true, attributeFilter: ["data-theme", "data-mode", "data-jp-theme-light", "class"] });
    }
    const scheme = matchMedia("(prefers-color-scheme: dark)"), change = () => this.redraw();
    scheme.addEventListener("change", change);
    this.released.push(() => size.disconnect(), () => theme.disconnect(), () => scheme.removeEventListener("change", change));
  }

  dispose() {
    this.disposed = true;
    clearTimeout(this.timer);
    cancelAnimationFrame(this.frame);
    this.released.forEach((release) => release());
    this.root.remove();
  }

  // -- state -----------------------------------------------------------------------------------

  get task() {
    const specs = this.model.get("tasks"), index = Math.min(Math.max(this.model.get("task") ?? 0, 0), specs.length - 1);
    if (!this.tasks.has(index)) this.tasks.set(index, new Task(specs[index]));
    this.taskIndex = index;
    return this.tasks.get(index);
  }

  get headsOn() {
    const { heads } = this.task, given = this.model.get("heads_on") ?? [];
    const fits = given.length === heads.length && heads.every((count, l) => given[l].length === count && given[l].some(Boolean));
    return fits ? given : heads.map((count) => Array(count).fill(true));
  }

  get noise() {
    const value = this.model.get("noise");
    return this.task.noises?.length ? value ?? this.task.noise : 1;
  }

  problemFor(headsOn) {
    const { task } = this, key = `${this.taskIndex}|${this.noise}|${headsOn.map((layer) => layer.map(Number).join("")).join(",")}`;
    if (!this.problems.has(key)) {
      if (this.problems.size > 8) this.problems.clear();
      this.problems.set(key, Object.assign(new Problem(task, headsOn, this.noise), { key }));
    }
    return this.problems.get(key);
  }

  set(name, value) {
    this.model.set(name, value);
    this.unsaved = true;
  }

  /** Solve and redraw at the next frame. */
  request() {
    clearTimeout(this.timer); // what was to follow the last solve is out of date
    this.root.dataset.state = "busy";
    this.asked ??= now();
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.update());
  }

  update() {
    if (this.disposed) return;
    clearTimeout(this.timer);
    const headsOn = this.headsOn, problem = this.problemFor(headsOn);
    const width = this.model.get("width"), temperature = this.model.get("temperature");
    const all = headsOn.map((layer) => layer.map(() => true));
    const gpKey = `${problem.key}|${temperature}`;
    if (this.gp?.key !== gpKey) {
      this.gp = Object.assign(gaussianProcess(problem, temperature), { key: gpKey });
      const kernel = problem.kernel(this.gp.U);
      this.gp.kernel = kernel;
      this.gp.alignment = alignment(kernel, this.task.y);
    }
    this.problem = problem;
    this.pruned = headsOn.some((layer) => layer.includes(false));
    this.whole = this.pruned ? this.problemFor(all) : problem;
    const start = this.last?.problem.heads.join() === problem.heads.join() && this.last.task === this.taskIndex ? this.last.result : null;
    this.accept(solve(problem, width, temperature, { start }));
    this.wholeResult = this.result;
    if (this.pruned) {
      const before = this.lastWhole?.task === this.taskIndex ? this.lastWhole.result : null;
      this.wholeResult = solve(this.whole, width, temperature, { start: before });
      this.lastWhole = { result: this.wholeResult, task: this.taskIndex };
    }
    this.redraw();
    this.redrawMilliseconds = this.asked === undefined ? NaN : now() - this.asked;
    this.asked = undefined;
    this.root.dataset.state = "solved";
    this.timer = setTimeout(() => this.settle(), 250);
  }

  accept(result) {
    this.result = result;
    this.kernel = this.problem.kernel(result.U);
    this.alignment = alignment(this.kernel, this.task.y);
    this.last = { problem: this.problem, result, task: this.taskIndex };
  }

  /** After a pause: search from the GP point too, keep the lower action, tell Python and the reader. */
  settle() {
    const { problem } = this, width = this.model.get("width"), temperature = this.model.get("temperature");
    const cold = solve(problem, width, temperature);
    if (cold.action < this.result.action - 1e-10 * Math.abs(this.result.action)) {
      this.accept(cold);
      this.redraw();
    }
    this.announce();
    const { U, action, energy, entropy, gradient, accuracy, evaluations } = this.result;
    this.model.set("result", {
      order_parameter: Array.from({ length: problem.n }, (_, a) => Array.from(U.slice(a * problem.n, (a + 1) * problem.n))),
      paths: problem.active, action, energy, entropy, gradient, accuracy, evaluations, gp_accuracy: this.gp.accuracy,
    });
    this.model.save_changes();
    this.trace();
  }

  /** The accuracy curve (and the minimum's way, for a landscape) at these settings, a point at a time. */
  trace() {
    const key = this.curveKey(this.problem), job = [this.problem, this.whole].filter((p, i, all) => all.indexOf(p) === i && !this.curve(p)?.done);
    if (!job.length) {
      this.root.dataset.state = "settled";
      return;
    }
    const problem = job[0], temperature = this.model.get("temperature"), widths = [...this.task.widths].sort((a, b) => b - a);
    const curve = { widths: [], accuracy: [], U: [], done: false };
    this.curves.set(this.curveKey(problem), curve);
    let start = null;
    const next = () => {
      if (this.disposed || this.curveKey(this.problem) !== key) return;
      const began = now();
      while (curve.widths.length < widths.length && now() - began < 12) {
        const width = widths[curve.widths.length];
        start = solve(problem, width, temperature, { start, tol: 1e-5 });
        curve.widths.push(width);
        curve.accuracy.push(start.accuracy);
        curve.U.push(start.U);
      }
      curve.done = curve.widths.length === widths.length;
      this.drawAccuracy();
      this.drawLandscape();
      this.timer = setTimeout(curve.done ? () => this.trace() : next, 0);
    };
    next();
  }

  curveKey(problem) {
    return `${problem.key}|${this.model.get("temperature")}`;
  }

  /** The accuracy curve of a problem at this temperature: computed here, or sent by Python. */
  curve(problem) {
    const own = this.curves.get(this.curveKey(problem));
    if (own) return own;
    const { curve, heads, noises } = this.task;
    const same = problem.heads.join() === heads.join() && curve && curve.temperature === this.model.get("temperature")
      && (!noises?.length || curve.noise === this.noise);
    return same && !this.canvases.landscape ? { widths: this.task.widths, accuracy: curve.accuracy, done: true } : null;
  }

  // -- controls --------------------------------------------------------------------------------

  build() {
    const { root, model, id } = this, views = model.get("views");
    root.replaceChildren();
    this.canvases = {};
    const title = model.get("title");
    if (title) element(root, "p", { class: "ax-title" }, title);
    const controls = element(root, "div", { class: "ax-controls" });

    const specs = model.get("tasks");
    if (specs.length > 1) {
      const line = element(controls, "div", { class: "ax-control ax-wide" });
      element(line, "label", { for: `${id}-task` }, "Task");
      this.select = element(line, "select", { id: `${id}-task`, "aria-label": "Task" });
      specs.forEach((spec, index) => element(this.select, "option", { value: index }, spec.name));
      this.select.addEventListener("change", () => this.choose(Number(this.select.value)));
    }
    this.sliders = {};
    this.slider(controls, "width", "Width", "N", "Network width N", (v) => widthText(v), (v) => `N = ${widthText(v)}`);
    this.slider(controls, "temperature", "Temperature", "T", "Temperature T", plain, (v) => `T = ${plain(v)}, variance of the label noise`);
    this.slider(controls, "noise", "Noise", "σ⊥", "Noise strength σ⊥ outside the signal's plane", plain, (v) => `σ⊥ = ${plain(v)}`);
    this.headBox = element(controls, "div", { class: "ax-heads ax-wide" });
    this.headKey = null;

    this.headline = element(root, "div", { class: "ax-headline" });
    this.accuracyText = this.stat("Test accuracy", "theory, finite width", "ax-theory", "accuracy");
    this.gpText = this.stat("Gaussian process", "N → ∞", "ax-gp", "gp");
    this.gainText = this.stat("Difference", "percentage points", "", "gain");
    this.actionText = this.stat("Action", "at its minimum", "", "action");

    const panels = element(root, "div", { class: "ax-panels" });
    for (const view of views) {
      if (!(view in PANELS)) continue;
      const figure = element(panels, "figure", { class: `ax-panel ax-panel-${view}` });
      const caption = element(figure, "figcaption");
      caption.innerHTML = PANELS[view];
      this.canvases[view] = element(figure, "div", { class: "ax-plot" });
      if (view === "landscape") {
        this.landscapeNote = element(figure, "p", { class: "ax-note" });
        this.landscapeControls(figure);
      }
      if (view === "order_parameter") this.readout = element(figure, "p", { class: "ax-note" });
    }
    if (this.canvases.accuracy) this.draggable(this.canvases.accuracy);

    const details = element(root, "details", { class: "ax-details" });
    element(details, "summary", {}, "All values");
    this.values = element(details, "div", { class: "ax-values" });
    details.addEventListener("toggle", () => this.drawValues());
    this.details = details;
    const foot = element(root, "div", { class: "ax-foot" });
    this.status = element(foot, "span", { class: "ax-status" });
    const reset = element(foot, "button", { type: "button", class: "ax-reset" }, "Reset");
    reset.addEventListener("click", () => this.reset());
    this.live = element(root, "p", { class: "ax-hidden", "aria-live": "polite", role: "status" });
    this.initial ??= { task: model.get("task"), width: model.get("width"), temperature: model.get("temperature"), noise: model.get("noise"), heads_on: model.get("heads_on") };
  }

  stat(name, note, kind, key) {
    const box = element(this.headline, "div", { class: `ax-stat ${kind}` });
    element(box, "span", { class: "ax-stat-name" }, name);
    const value = element(box, "span", { class: "ax-stat-value", "data-value": key }, "–");
    element(box, "span", { class: "ax-stat-note" }, note);
    return value;
  }

  /** A range input over a list of stops; Python may set values between them. */
  slider(parent, name, word, symbol, label, text, spoken) {
    const line = element(parent, "div", { class: "ax-control" }), id = `${this.id}-${name}`;
    const caption = element(line, "label", { for: id }, `${word} `);
    element(caption, "i", {}, symbol);
    const input = element(line, "input", { type: "range", id, min: 0, step: 1, "aria-label": label });
    const output = element(line, "span", { class: "ax-output", "aria-hidden": "true" }); // the slider says it too
    input.addEventListener("input", () => {
      const value = this.stops(name)[Number(input.value)];
      input.setAttribute("aria-valuetext", spoken(value));
      output.textContent = text(value);
      this.set(name, value);
    });
    this.sliders[name] = { line, input, output, text, spoken };
  }

  stops(name) {
    const { task } = this;
    return { width: task.width_stops, temperature: task.temperature_stops, noise: task.noises ?? [] }[name];
  }

  showControls() {
    if (this.select) this.select.value = String(this.taskIndex);
    for (const [name, { line, input, output, text, spoken }] of Object.entries(this.sliders)) {
      const stops = this.stops(name);
      line.hidden = stops.length < 2;
      if (line.hidden) continue;
      const value = name === "noise" ? this.noise : this.model.get(name);
      const gap = (stop) => (name === "noise" ? Math.abs(stop - value) : Math.abs(Math.log(stop / value)));
      const nearest = stops.reduce((best, stop, i) => (gap(stop) < gap(stops[best]) ? i : best), 0);
      input.max = stops.length - 1;
      if (Number(input.value) !== nearest) input.value = nearest;
      input.setAttribute("aria-valuetext", spoken(value));
      output.textContent = text(value);
    }
    this.showHeads();
  }

  showHeads() {
    const { task, headsOn } = this, box = this.headBox;
    const wanted = this.model.get("views").includes("heads") && task.heads.some((count) => count > 1);
    box.hidden = !wanted;
    if (!wanted) return;
    if (this.headKey !== this.taskIndex) {
      this.headKey = this.taskIndex;
      box.replaceChildren();
      this.chips = task.heads.map((count, l) => {
        const set = element(box, "fieldset");
        element(set, "legend", {}, `Layer ${l + 1} heads`);
        return Array.from({ length: count }, (_, h) => {
          const chip = element(set, "label", { class: "ax-chip" });
          const input = element(chip, "input", { type: "checkbox", "aria-label": `Layer ${l + 1}, head ${h + 1}: ${task.head_names[l][h]}` });
          element(chip, "span", { class: "ax-chip-name" }, task.head_names[l][h]);
          const bar = element(element(chip, "span", { class: "ax-chip-bar", "aria-hidden": "true" }), "span");
          input.addEventListener("change", () => {
            const next = this.headsOn.map((layer) => [...layer]);
            next[l][h] = input.checked;
            if (!next[l].some(Boolean)) { // the network needs a head in every layer
              input.checked = true;
              this.live.textContent = `Layer ${l + 1} needs at least one head.`;
              chip.classList.remove("ax-refuse");
              void chip.offsetWidth;
              chip.classList.add("ax-refuse");
              return;
            }
            this.set("heads_on", next);
          });
          return { chip, input, bar };
        });
      });
      element(box, "span", { class: "ax-hint" }, "bar: head score");
    }
    const scores = headScores(this.problem, headsOn, this.result.U);
    this.chips.forEach((layer, l) => layer.forEach(({ chip, input, bar }, h) => {
      const on = headsOn[l][h], only = headsOn[l].filter(Boolean).length === 1;
      input.checked = on;
      chip.classList.toggle("ax-off", !on);
      bar.style.width = `${100 * scores[l][h]}%`;
      chip.title = on
        ? `${task.head_names[l][h]}: score ${scores[l][h].toFixed(2)}${only ? " (the only head left in this layer)" : ""}`
        : `${task.head_names[l][h]}: off`;
    }));
  }

  choose(index) {
    const spec = this.model.get("tasks")[index];
    this.set("heads_on", spec.heads.map((count) => Array(count).fill(true)));
    this.set("temperature", spec.temperature);
    this.set("noise", spec.noise ?? 1);
    this.set("task", index);
  }

  reset() {
    for (const [name, value] of Object.entries(this.initial)) this.set(name, value);
    this.request();
  }

  /** Drag the marked point of the accuracy chart along the width axis. */
  draggable(host) {
    const move = (event) => {
      const chart = this.chart;
      if (!chart) return;
      const box = host.getBoundingClientRect(), stops = this.task.width_stops;
      const f = Math.min(Math.max((event.clientX - box.left - chart.left) / (chart.right - chart.left), 0), 1);
      const target = Math.log(chart.from) + f * Math.log(chart.to / chart.from);
      const value = stops.reduce((best, stop) => (Math.abs(Math.log(stop) - target) < Math.abs(Math.log(best) - target) ? stop : best));
      if (value !== this.model.get("width")) this.set("width", value);
    };
    host.classList.add("ax-drag");
    host.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      host.setPointerCapture(event.pointerId);
      move(event);
    });
    host.addEventListener("pointermove", (event) => { if (host.hasPointerCapture(event.pointerId)) move(event); });
  }

  // -- panels ----------------------------------------------------------------------------------

  redraw() {
    if (this.disposed || !this.result || !this.root.clientWidth) return;
    this.root.toggleAttribute("data-dark", dark());
    const style = getComputedStyle(this.root), list = (name) => style.getPropertyValue(name).trim().split(/\s+/).map(rgb);
    const table = (colours) => Array.from({ length: 257 }, (_, i) => ramp(colours, i / 256));
    this.colours = { diverging: table(list("--ax-diverging")), sequential: table(list("--ax-sequential")), off: list("--ax-off")[0] };
    this.showControls();
    this.accuracyText.textContent = percent(this.result.accuracy);
    this.gpText.textContent = percent(this.gp.accuracy);
    const gain = 100 * (this.result.accuracy - this.gp.accuracy), [name, , note] = this.gainText.parentNode.children;
    name.textContent = this.pruned ? "With all heads on" : "Difference";
    note.textContent = this.pruned ? "at the same N and T" : "percentage points";
    this.gainText.textContent = this.pruned ? percent(this.wholeResult.accuracy) : `${gain < -0.05 ? "−" : "+"}${Math.abs(gain).toFixed(1)}`;
    this.actionText.textContent = show(this.result.action, 6);
    this.drawOrderParameter();
    this.drawAccuracy();
    this.drawLandscape();
    this.drawComponents();
    this.drawKernel();
    this.drawValues();
    const { evaluations, milliseconds, gradient } = this.result;
    this.status.textContent = `Solved in this page: ${milliseconds.toFixed(0)} ms, ${evaluations} evaluations, gradient ${show(gradient, 1)}`;
  }

  plot(name, height) {
    const host = this.canvases[name];
    if (!host) return null;
    host.replaceChildren();
    const width = Math.floor(host.clientWidth);
    return width > 40 ? { host, width, height: typeof height === "function" ? height(width) : height } : null;
  }

  signed(value, limit) {
    return this.colours.diverging[Math.min(256, Math.max(0, Math.round(128 + (128 * value) / limit)))];
  }

  drawOrderParameter() {
    const plot = this.plot("order_parameter");
    if (!plot) return;
    const { task, problem, result } = this, n = task.paths, place = new Map(problem.active.map((path, i) => [path, i]));
    const entry = (a, b) => (place.has(a) && place.has(b) ? result.U[place.get(a) * problem.n + place.get(b)] : null);
    const limit = result.U.reduce((m, v) => Math.max(m, Math.abs(v)), 0);
    const longest = Math.max(...task.path_names.map((name) => name.length)), gutter = Math.min(10 + 7.2 * longest, 74);
    const size = Math.min(plot.width - gutter - 4, 92 * n, 264), cell = size / n, font = Math.max(8, Math.min(13, cell * 0.85));
    const left = Math.max(gutter, (plot.width - size) / 2), top = 22, bar = 34;
    const box = element(plot.host, "div", { class: "ax-stack", style: `height:${top + size + bar}px` });
    const heat = element(box, "canvas", { class: "ax-pixels", "aria-hidden": "true", style: `left:${left}px;top:${top}px;width:${size}px;height:${size}px` });
    const colour = (a, b) => { const value = entry(a, b); return value === null ? this.colours.off : this.signed(value, limit); };
    paint(heat, n, n, colour);
    const svg = element(box, "svg", { width: plot.width, height: top + size + bar, role: "img", "aria-label": this.describeU() });
    const every = Math.ceil(11 / cell), places = limit >= 100 ? 0 : limit >= 1 ? 2 : 3;
    for (let a = 0; a < n; a++) {
      const on = place.has(a), tint = task.path_colours?.[a];
      if (a % every === 0) {
        for (const side of [{ x: left - 6, y: top + (a + 0.5) * cell + font * 0.35, "text-anchor": "end" }, { x: left + (a + 0.5) * cell, y: top - 7, "text-anchor": "middle" }]) {
          if (side.y === top - 7 && cell < 7.5 * longest) continue; // no room for names along the top
          const text = element(svg, "text", { class: `ax-path${on ? "" : " ax-struck"}`, "font-size": font, ...side }, task.path_names[a]);
          if (on && tint) text.style.fill = `color-mix(in srgb, ${tint} var(--ax-tint), var(--ax-tint-with))`;
        }
      }
      for (let b = 0; b < n && cell >= 34; b++) {
        const value = entry(a, b), [r, g, bl] = colour(a, b), dark = 0.299 * r + 0.587 * g + 0.114 * bl < 140;
        element(svg, "text", { class: `ax-cell ${value === null ? "ax-cell-off" : dark ? "ax-on-dark" : "ax-on-light"}`, x: left + (b + 0.5) * cell, y: top + (a + 0.5) * cell + 4, "text-anchor": "middle" },
          value === null ? "off" : value.toFixed(places).replace(/^-(?=0(\.0*)?$)/, "").replace("-", "−"));
      }
    }
    const mark = element(svg, "rect", { class: "ax-mark", width: cell, height: cell, visibility: "hidden" });
    svg.addEventListener("pointermove", (event) => {
      const at = svg.getBoundingClientRect(), b = Math.floor((event.clientX - at.left - left) / cell), a = Math.floor((event.clientY - at.top - top) / cell);
      const inside = a >= 0 && b >= 0 && a < n && b < n;
      mark.setAttribute("visibility", inside ? "visible" : "hidden");
      if (!inside) return;
      mark.setAttribute("x", left + b * cell);
      mark.setAttribute("y", top + a * cell);
      const value = entry(a, b);
      this.readout.textContent = `U(${task.path_names[a]}, ${task.path_names[b]}) ${value === null ? "is off" : `= ${show(value, 4)}`}`;
    });
    svg.addEventListener("pointerleave", () => {
      mark.setAttribute("visibility", "hidden");
      this.readout.textContent = this.readoutText;
    });
    const keyTop = top + size + 10, key = element(box, "canvas", { class: "ax-pixels ax-smooth", "aria-hidden": "true", style: `left:${left}px;top:${keyTop}px;width:${size}px;height:7px` });
    paint(key, 1, 65, (_, j) => this.signed(j - 32, 32));
    for (const [f, text, anchor] of [[0, `−${show(limit)}`, "start"], [0.5, "0", "middle"], [1, `+${show(limit)}`, "end"]]) {
      element(svg, "text", { class: "ax-tick", x: left + f * size, y: keyTop + 20, "text-anchor": anchor }, text);
    }
    this.readoutText = this.noteU();
    this.readout.textContent = this.readoutText;
  }

  /** What the heat map shows, in a line: the most negative pair of paths, or that there is none. */
  noteU() {
    const { problem, task, result } = this, n = problem.n;
    let low = 0, pair = null;
    for (let a = 0; a < n; a++) {
      for (let b = 0; b < a; b++) {
        const scaled = result.U[a * n + b] / Math.sqrt(result.U[a * n + a] * result.U[b * n + b]);
        if (scaled < low) { low = scaled; pair = [b, a]; }
      }
    }
    if (n === 1) return `one path: U = ${show(result.U[0], 3)}`;
    if (!pair || low > -0.02) return "hardly any negative entry: paths work side by side";
    const [a, b] = pair.map((i) => task.path_names[problem.active[i]]);
    return `most negative correlation: ${a} with ${b}, ${show(low, 2)}`;
  }

  describeU() {
    const { problem, task, result } = this, n = problem.n;
    const parts = problem.active.map((path, a) => `${task.path_names[path]} ${show(result.U[a * n + a], 3)}`);
    return `Order parameter, ${n} by ${n}. Diagonal: ${parts.slice(0, 8).join(", ")}${n > 8 ? ", …" : ""}. ${this.noteU()}.`;
  }

  drawAccuracy() {
    const plot = this.plot("accuracy", (w) => Math.min(300, Math.max(230, w * 0.72)));
    if (!plot) return;
    const { task, result, gp } = this, width = this.model.get("width");
    const curve = this.curve(this.problem), whole = this.pruned ? this.curve(this.whole) : null;
    const from = Math.min(task.width_stops[0], width), to = Math.max(task.width_stops.at(-1), width);
    const seen = [result.accuracy, gp.accuracy, ...(curve?.accuracy ?? []), ...(whole?.accuracy ?? []), ...(task.curve?.accuracy ?? [])].map((v) => 100 * v);
    const low = Math.max(0, Math.floor((Math.min(...seen) - 3) / 5) * 5), high = Math.min(100, Math.ceil((Math.max(...seen) + 1) / 5) * 5);
    const chart = axes(plot.host, {
      width: plot.width, height: plot.height, left: 46,
      x: { from, to, log: true, ticks: decades(from, to), text: integer, name: "width N" },
      y: { from: low, to: Math.max(high, low + 10), ticks: steps(low, Math.max(high, low + 10), 5), name: "test accuracy (%)" },
      label: `Test accuracy against width: ${percent(result.accuracy)} at N = ${widthText(width)}; Gaussian process limit ${percent(gp.accuracy)}`,
    });
    this.chart = { ...chart, from, to };
    const { svg, px, py } = chart, line = (c, kind, here) => {
      const points = c.widths.map((w, i) => [px(w), py(100 * c.accuracy[i])]).concat([[px(width), py(100 * here)]]);
      element(svg, "path", { class: kind, d: polyline(points.sort((a, b) => a[0] - b[0])) });
    };
    const level = py(100 * gp.accuracy);
    element(svg, "line", { class: "ax-line-gp", x1: chart.left, x2: chart.right, y1: level, y2: level });
    if (whole?.widths.length) line(whole, "ax-line-ghost", this.wholeResult.accuracy);
    if (curve?.widths.length) line(curve, "ax-line-theory", result.accuracy);
    const x = px(width), y = py(100 * result.accuracy);
    element(svg, "line", { class: "ax-drop", x1: x, x2: x, y1: y, y2: chart.bottom });
    element(svg, "circle", { class: "ax-point", cx: x, cy: y, r: 6.5 });
    this.legend(plot.host, [["ax-key-theory", "theory"], ["ax-key-gp", "GP, N → ∞"], ...(whole ? [["ax-key-ghost", "all heads on"]] : []), ["ax-key-point", "you are here: drag"]]);
  }

  legend(host, entries) {
    const list = element(host, "p", { class: "ax-legend", "aria-hidden": "true" });
    for (const [kind, text] of entries) element(list, "span", { class: kind }, text);
  }

  drawComponents() {
    const plot = this.plot("components", (w) => Math.min(260, Math.max(200, w * 0.6)));
    if (!plot) return;
    const count = Math.min(this.task.P, 30), now_ = this.alignment.overlaps, gp = this.gp.alignment.overlaps;
    const top = Math.max(...now_.slice(0, count), ...gp.slice(0, count), 0.1), to = Math.min(1, Math.ceil(top * 10 + 0.3) / 10);
    const best = (v) => v.slice(0, count).reduce((b, value, i) => (value > v[b] ? i : b), 0);
    const chart = axes(plot.host, {
      width: plot.width, height: plot.height, left: 46,
      x: { from: 0.4, to: count + 0.6, ticks: [1, ...steps(5, count, 5)].filter((t, i, all) => t <= count && all.indexOf(t) === i), name: "principal component" },
      y: { from: 0, to, ticks: steps(0, to, 4), name: "overlap |v · y| / |y|" },
      label: `Overlap of the kernel's components with the labels: largest ${now_[best(now_)].toFixed(2)} in component ${best(now_) + 1}; Gaussian process ${gp[best(gp)].toFixed(2)} in component ${best(gp) + 1}`,
    });
    const { svg, px, py } = chart, w = Math.max(2, ((chart.right - chart.left) / count) * 0.66);
    for (let i = 0; i < count; i++) element(svg, "rect", { class: "ax-bar", x: px(i + 1) - w / 2, width: w, y: py(now_[i]), height: chart.bottom - py(now_[i]) });
    for (let i = 0; i < count; i++) element(svg, "line", { class: "ax-step", x1: px(i + 1) - w / 2 - 1, x2: px(i + 1) + w / 2 + 1, y1: py(gp[i]), y2: py(gp[i]) });
    this.legend(plot.host, [["ax-key-bar", "theory"], ["ax-key-step", "GP, N → ∞"]]);
  }

  drawKernel() {
    const plot = this.plot("kernel");
    if (!plot) return;
    const { task } = this, P = task.P, order = Array.from(task.y.keys()).sort((a, b) => task.y[b] - task.y[a] || a - b);
    const plus = task.y.filter((value) => value > 0).length, gap = 14, size = Math.min(Math.floor((plot.width - gap) / 2), 190), top = 20;
    const box = element(plot.host, "div", { class: "ax-stack", style: `height:${top + size + 34}px` });
    const svg = element(box, "svg", { width: plot.width, height: top + size + 34, role: "img", "aria-label": "Kernel matrices of the training examples sorted by class, at this width and in the Gaussian process limit" });
    const start = (plot.width - 2 * size - gap) / 2;
    [[this.kernel, `N = ${widthText(this.model.get("width"))}`, "ax-name-theory"], [this.gp.kernel, "GP, N → ∞", "ax-name-gp"]].forEach(([kernel, name, kind], k) => {
      const left = start + k * (size + gap), at = (i, j) => kernel[i >= j ? (i * (i + 1)) / 2 + j : (j * (j + 1)) / 2 + i];
      const off = new Float64Array((P * (P - 1)) / 2);
      for (let i = 1, k = 0; i < P; i++) for (let j = 0; j < i; j++) off[k++] = at(i, j);
      // what matters is which examples are more alike than others: the mean off the diagonal is zero here
      const mean = off.reduce((sum, value) => sum + value, 0) / off.length;
      const sizes = off.map((value) => Math.abs(value - mean)).sort();
      const limit = sizes[Math.floor(0.98 * (sizes.length - 1))] || 1;
      const heat = element(box, "canvas", { class: "ax-pixels", "aria-hidden": "true", style: `left:${left}px;top:${top}px;width:${size}px;height:${size}px` });
      paint(heat, P, P, (i, j) => this.signed(at(order[i], order[j]) - mean, limit));
      element(svg, "text", { class: `ax-tick ${kind}`, x: left + size / 2, y: 13, "text-anchor": "middle" }, name);
      const cut = (size * plus) / P;
      element(svg, "path", { class: "ax-cut", d: `M${left + cut} ${top}V${top + size}M${left} ${top + cut}H${left + size}` });
      for (const [middle, text] of [[cut / 2, "+1"], [(cut + size) / 2, "−1"]]) {
        element(svg, "text", { class: "ax-tick", x: left + middle, y: top + size + 14, "text-anchor": "middle" }, text);
      }
    });
    element(svg, "text", { class: "ax-label", x: plot.width / 2, y: top + size + 30, "text-anchor": "middle" }, "examples by class; mean taken off");
  }

  landscapeControls(figure) {
    const line = element(figure, "div", { class: "ax-choices" });
    this.plane ??= "diagonal";
    this.part ??= "action";
    const group = (name, label, options) => {
      const set = element(line, "fieldset", { class: "ax-segments" });
      element(set, "legend", { class: "ax-hidden" }, label);
      for (const [value, text] of options) {
        const chip = element(set, "label"), input = element(chip, "input", { type: "radio", name: `${this.id}-${name}`, value, checked: this[name] === value });
        element(chip, "span", {}, text);
        input.addEventListener("change", () => {
          this[name] = value;
          this.drawLandscape();
        });
      }
    };
    group("part", "Shown", [["action", "action"], ["energy", "energy"], ["entropy", "entropy"]]);
    group("plane", "Plane", [["diagonal", "U₁₁ and U₂₂"], ["cross", "U₁₁ and correlation"]]);
  }

  /** The action of a one-layer network of two heads over two of its three order parameters U_11, U_22 and
   * the correlation U_12 / sqrt(U_11 U_22); the third is held at the minimum. */
  drawLandscape() {
    if (!this.canvases.landscape || !this.result || !this.colours) return;
    const plot = this.plot("landscape", (w) => Math.min(480, Math.max(270, w * 1.15)));
    if (!plot) return;
    const { problem, task, result } = this;
    if (problem.n !== 2 || problem.heads.length !== 1) {
      element(plot.host, "p", { class: "ax-note" }, "The landscape is drawn with both heads on.");
      return;
    }
    this.landscapeNote.textContent = `${dark() ? "Bright" : "Dark"} is low; the third order parameter is held at the minimum.`;
    const width = this.model.get("width"), temperature = this.model.get("temperature"), cross = this.plane === "cross";
    const curve = this.curve(problem), [, v1, va] = task.variances;
    const point = (U) => [U[0], cross ? U[1] / Math.sqrt(U[0] * U[3]) : U[3]];
    const here = point(result.U), gp = point(this.gp.U), way = (curve?.U ?? []).map((U, i) => [curve.widths[i], ...point(U)]);
    const span = (k) => {
      const all = [here[k], gp[k], ...way.map((step) => step[k + 1])];
      return [Math.min(...all) / 2.2, Math.max(...all) * 2.2];
    };
    const [x0, x1] = span(0), [y0, y1] = cross ? [-1, 1] : span(1);
    const size = 41, values = new Float64Array(size * size), U = new Float64Array(4);
    const held = cross ? result.U[3] : result.U[1] / Math.sqrt(result.U[0] * result.U[3]);
    const left = 52, right = 12, top = 8, bottom = 36, w = plot.width - left - right, hgt = plot.height - top - bottom;
    for (let i = 0; i < size; i++) {
      const f = 1 - (i + 0.5) / size;
      U[3] = cross ? held : y0 * (y1 / y0) ** f;
      for (let j = 0; j < size; j++) {
        U[0] = x0 * (x1 / x0) ** ((j + 0.5) / size);
        U[1] = U[2] = (cross ? y0 + f * (y1 - y0) : held) * Math.sqrt(U[0] * U[3]);
        values[i * size + j] = this.actionAt(U, width, temperature, v1, va);
      }
    }
    const sorted = values.slice().sort(), low = sorted[0];
    const high = sorted[Math.floor((cross ? 0.9 : 0.97) * (sorted.length - 1))], share = (v) => Math.sqrt(Math.max(0, v - low) / (high - low));
    const box = element(plot.host, "div", { class: "ax-stack", style: `height:${plot.height}px` });
    const heat = element(box, "canvas", { class: "ax-pixels ax-smooth", "aria-hidden": "true", style: `left:${left}px;top:${top}px;width:${w}px;height:${hgt}px` });
    paint(heat, size, size, (i, j) => this.colours.sequential[Math.min(256, Math.round(256 * share(values[i * size + j])))]);
    const chart = axes(box, {
      width: plot.width, height: plot.height, left, right, top, bottom,
      x: { from: x0, to: x1, log: true, ticks: decades(x0, x1), text: (v) => show(v, 1), name: `U₁₁, weight of path ${task.path_names[0]}` },
      y: cross ? { from: y0, to: y1, ticks: [-1, -0.5, 0, 0.5, 1], text: (v) => plain(v).replace("-", "−"), name: "correlation U₁₂ / √(U₁₁ U₂₂)" }
        : { from: y0, to: y1, log: true, ticks: decades(y0, y1), text: (v) => show(v, 1), name: `U₂₂, weight of path ${task.path_names[1]}` },
      label: `${this.part} over two order parameters; minimum at U11 = ${show(result.U[0])}, U12 = ${show(result.U[1])}, U22 = ${show(result.U[3])}`,
    });
    const { svg, px, py } = chart, at = ([a, b]) => [px(a), py(b)];
    const lines = element(svg, "g", { transform: `translate(${left + w / size / 2} ${top + hgt / size / 2}) scale(${w / size} ${hgt / size})` });
    for (let k = 1; k <= 9; k++) element(lines, "path", { class: "ax-contour", d: contour(values, size, size, low + (k / 10) ** 2 * (high - low)) });
    const points = [...way.sort((a, b) => a[0] - b[0]).map(([, ...step]) => at(step)), at(gp)];
    element(svg, "path", { class: "ax-way-halo", d: polyline(points) });
    element(svg, "path", { class: "ax-way", d: polyline(points) });
    for (const [kind, [cx, cy]] of [["ax-point ax-point-gp", at(gp)], ["ax-point", at(here)]]) element(svg, "circle", { class: kind, cx, cy, r: 6 });
    this.legend(plot.host, [["ax-key-point", `minimum at N = ${widthText(width)}`], ["ax-key-point-gp", "GP point"], ["ax-key-way", "minimum as N changes"]]);
  }

  /** Action, or its part in view, of a 2 x 2 order parameter; the readout takes its best value. */
  actionAt(U, width, temperature, v1, va) {
    const trace = U[0] + U[3], determinant = U[0] * U[3] - U[1] * U[2];
    const u = (-va + Math.sqrt(va * va + (4 * va * trace) / v1)) / 2;
    const entropy = trace / (u * v1) - Math.log(determinant) + 2 * Math.log(u) + u / va - Math.log(u);
    if (this.part === "entropy") return entropy;
    const energy = this.problem.energy(U, temperature) / width;
    return this.part === "energy" ? energy : energy + entropy;
  }

  drawValues() {
    if (!this.details.open) return;
    const { problem, task, result, values } = this, n = problem.n;
    values.replaceChildren();
    const list = element(values, "dl");
    for (const [name, value] of [
      ["test accuracy", percent(result.accuracy)], ["GP accuracy", percent(this.gp.accuracy)],
      ["action", show(result.action, 8)], ["energy / N", show(result.energy, 8)], ["entropy / N", show(result.entropy, 8)],
      ["gradient left", show(result.gradient, 2)], ["readout u", show(result.readout, 6)],
      ["evaluations", String(result.evaluations)], ["test examples", integer(task.yTest.length)],
    ]) {
      element(list, "dt", {}, name);
      element(list, "dd", {}, value);
    }
    if (n > 8) return;
    const scroll = element(values, "div", { class: "ax-scroll" }), table = element(scroll, "table");
    element(table, "caption", {}, "Order parameter U");
    const head = element(element(table, "thead"), "tr");
    element(head, "td");
    for (const path of problem.active) element(head, "th", { scope: "col" }, task.path_names[path]);
    const body = element(table, "tbody");
    problem.active.forEach((path, a) => {
      const row = element(body, "tr");
      element(row, "th", { scope: "row" }, task.path_names[path]);
      for (let b = 0; b < n; b++) element(row, "td", {}, show(result.U[a * n + b], 5));
    });
  }

  announce() {
    const { result, gp, task } = this;
    this.live.textContent = `${task.name}. Width ${widthText(this.model.get("width"))}, temperature ${plain(this.model.get("temperature"))}: `
      + `test accuracy ${percent(result.accuracy)}, Gaussian process ${percent(gp.accuracy)}. ${this.describeU()}`;
  }
}

function render({ model, el }) {
  const view = new ExplorerView(model, el);
  el.explorer = view; // for tests and the console
  return () => view.dispose();
}

/** The model of a static page: what Jupyter's offers, without a kernel. */
export function standIn(state) {
  const listeners = new Map();
  return {
    get: (name) => state[name],
    set(name, value) {
      if (state[name] === value) return;
      state[name] = value;
      listeners.get(`change:${name}`)?.forEach((action) => action());
    },
    on: (event, action) => listeners.set(event, [...(listeners.get(event) ?? []), action]),
    off: (event, action) => listeners.set(event, (listeners.get(event) ?? []).filter((other) => other !== action)),
    save_changes() {},
  };
}

export default { render };
