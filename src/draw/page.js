// The page's script: shows one map of one record, and lets the reader choose which.  What draws
// the map is in page_map.js, which stands before it in the page.
// It reads the JSON in #data and writes nothing but this document and its address:
//   parts    name, letter, rows, keys (labels), rowSpecial, keySpecial (0 or 1), self, causal,
//            layers, heads, at (where its maps begin), verb, rowSay, keySay,
//            tile (words a label stands for; a cell is the largest weight in it) and words,
//            roles and entropy of [layer][head]
//   maps     base64 of little-endian u16, weight × 65535, by part, layer, head, row, key
//   start    scale, part, layer, head (-1: mean of the heads) and row (-1: none) of the first map
//   picture  image and shade, of a record whose source is one; a part of which the keys are its
//            places has across, how many there are in a line
//   verdict  part and layer of the map, mean of the heads, that it speaks of; unclear, its rows
//            that read no one word; of a picture held, the weight beside each row's word, and
//            clear, from which on it is none of these
'use strict';
const $ = id => document.getElementById(id);
const all = selector => [...document.querySelectorAll(selector)];
const root = document.documentElement;
const data = JSON.parse($('data').textContent);
const maps = (text => {
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
    return new DataView(bytes.buffer);
})(atob(data.maps));
const UNSEEN = -1, HIDDEN = -2;    // cells without a weight: by the model, by the reader
const state = { key: -1, special: 0, thumbs: 0, ...data.start };
let over = null;       // what the pointer is on: {part, layer, head} or {row, key}
let cells = null;      // where the map's cells lie: x, y, size, and those shown
let colour = null;     // of the theme: ink, soft, line, amber, and 256 of each ramp

const number = weight => weight > 0 && weight < .005 ? '<.01' : weight >= .995 && weight < 1.005 ? '1.0' : weight.toFixed(2).replace(/^0/, '');
const clamp = (x, low, high) => Math.min(high, Math.max(low, x));

function element(tag, properties, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
}

function luminance(channels) {
    const [r, g, b] = channels.map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
}

// 256 steps between five stops, each with the ink that contrasts more.
function steps(stops) {
    const ends = stops.match(/[0-9a-f]{6}/gi).map(s => [0, 2, 4].map(k => parseInt(s.substr(k, 2), 16)));
    return Array.from({ length: 256 }, (_, n) => {
        const t = n / 255 * 4, i = Math.min(3, t | 0);
        const rgb = ends[i].map((a, k) => Math.round(a + (ends[i + 1][k] - a) * (t - i)));
        return { rgb, fill: `rgb(${rgb})`, ink: luminance(rgb) > .189 ? '#080E16' : '#FFFFFF' };
    });
}

function readColours() {
    const style = getComputedStyle(root), named = name => style.getPropertyValue('--' + name).trim();
    colour = { ramp: steps(named('ramp')), uniform: steps(named('uniform')) };
    for (const name of ['ink', 'soft', 'line', 'amber']) colour[name] = named(name);
}

// Where a weight lies on the ramp, 0 to 1; cells, words, thumbnails and legend all ask here.
const position = [
    weight => weight,
    weight => 1 + Math.log10(weight) / 3,
    (weight, visible) => (Math.log2(weight * visible) + 4) / 8,
];
function paint(weight, visible) {
    const ramp = state.scale === 2 ? colour.uniform : colour.ramp;
    return ramp[Math.round(255 * clamp(position[state.scale](weight, visible), 0, 1))];
}

function weight(part, layer, head, row, key) {
    const size = part.rows.length * part.keys.length, cell = row * part.keys.length + key;
    const at = h => maps.getUint16(2 * (part.at + (layer * part.heads + h) * size + cell), true) / 65535;
    if (head >= 0) return at(head);
    let sum = 0;
    for (let h = 0; h < part.heads; h++) sum += at(h);
    return sum / part.heads;
}
const unseen = (part, row, key) => part.causal && key > row;

// A row as it is to be shown.
function shownRow(part, layer, head, row) {
    const weights = part.keys.map((_, key) => unseen(part, row, key) ? UNSEEN : weight(part, layer, head, row, key));
    if (!state.special) return weights;
    const kept = weights.reduce((sum, w, key) => sum + (w >= 0 && !part.keySpecial[key] ? w : 0), 0);
    return weights.map((w, key) => w === UNSEEN ? w
        : part.keySpecial[key] || part.rowSpecial[row] ? HIDDEN
        : state.special === 2 ? (kept > 0 ? w / kept : 0) : w);
}
const shownMap = (part, layer, head) => part.rows.map((_, row) => shownRow(part, layer, head, row));

function visible(part, row) {
    if (part.tile > 1) return part.causal ? Math.min(part.words, (row + 1) * part.tile) : part.words;
    return part.keySpecial.reduce((n, special, key) => n + !(unseen(part, row, key) || state.special === 2 && special), 0);
}

const view = () => over && 'part' in over ? over : state;
// The verdict, where the map shown is the one that it speaks of.
function verdict() {
    const { part, layer, head } = view(), said = data.verdict;
    return said && said.part === part && said.layer === layer && (head < 0 || data.parts[part].heads === 1) ? said : null;
}
const cursor = () => over && 'row' in over ? over : state;

// ---- the map ----

function drawMap() {
    const { part: p, layer, head } = view(), part = data.parts[p], canvas = $('map'), g = canvas.getContext('2d');
    const width = canvas.parentNode.clientWidth, ratio = devicePixelRatio || 1, family = getComputedStyle(document.body).fontFamily;
    const font = (bold, size) => g.font = `${bold ? 600 : 400} ${size}px ${family}`;
    const map = shownMap(part, layer, head);
    cells = part.across ? measurePlaces(part, width) : measure(g, part, width, font);
    const { x, y, size, beside } = cells, n = part.rows.length;
    const height = part.across ? Math.ceil(n / beside) * y : y + Math.ceil(size * n) + 2;
    canvas.style.width = width + 'px';
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (part.across) {
        drawPlaces(g, part, map, font);
        return map;
    }
    drawCells(g, part, map, font);
    labels(g, part, map, font);
    drawMarks(g, part);
    return map;
}

// ---- what is said about it ----

function say(part, layer, head, map) {
    const { row, key } = cursor(), weights = map[row], lines = [];
    const bdi = word => element('bdi', {}, word), span = text => element('span', {}, text);
    const list = (found, labels) => found.sort((a, b) => b[0] - a[0]).slice(0, 4)
        .flatMap(([w, i], n) => [n ? ', ' : '', bdi(labels[i]), span(' ' + number(w))]);
    const line = (...parts) => lines.push(element('div', {}, ...parts));
    const pairs = weights ? weights.map((w, j) => [w, j]).filter(([w]) => w >= 0) : [];
    const best = key >= 0 ? key : pairs.length ? pairs.reduce((a, b) => b[0] > a[0] ? b : a)[1] : -1;
    if (!weights && key < 0) {
        line(part.across ? 'Point at a place or a word; a click keeps it.'
            : `Rows: ${part.rowSay}. Columns: ${part.keySay}. Point at a cell or a word; a click keeps it.`);
    } else if (!weights) {
        line(element('b', {}, '“', bdi(part.keys[key]), '”'), part.self ? ' is looked at by ' : ' is read by ',
            ...list(map.map((w, i) => [w[key], i]).filter(([w]) => w >= 0), part.rows));
    } else if (best < 0 || weights[best] === HIDDEN) {
        line(element('b', {}, 'not shown'), ': special token');
    } else if (weights[best] === UNSEEN) {
        line(element('b', {}, '“', bdi(part.rows[row]), '” cannot see “', bdi(part.keys[best]), '”'), ': it comes later');
    } else {
        const w = weights[best];
        line(element('b', {}, '“', bdi(part.rows[row]), `” ${part.verb} “`, bdi(part.keys[best]), '” ' + number(w)),
            ` ${(w * visible(part, row)).toFixed(1)} × uniform` + (state.special === 2 ? ', renormalised' : '') + (part.tile > 1 ? ', the most of its tile' : ''));
        if (part.layers * part.heads > 1) line(...everyHead(part, row, best, span));
    }
    if (pairs.length) line('row: ', ...list(pairs, part.keys));
    $('read').replaceChildren(...lines);
}

// The pair in all heads of its part, as the model used it.
function everyHead(part, row, key, span) {
    let most = -1, where = '', sum = 0;
    for (let l = 0; l < part.layers; l++)
        for (let h = 0; h < part.heads; h++) {
            const w = weight(part, l, h, row, key);
            sum += w;
            if (w > most) [most, where] = [w, `${l + 1}.${h + 1}`];
        }
    const n = part.layers * part.heads;
    return [`this pair in all ${n} heads: most `, span(number(most)), ` (${where}), mean `, span(number(sum / n))];
}

function legend(part) {
    document.querySelector('[aria-label=scale]').hidden = part.across > 0;
    if (part.across) {
        $('legend').replaceChildren(element('span', {}, 'The darker a place, the nearer its weight to the word’s largest. Beside a word: the weight on its top place and right around it; in amber less than ' + data.verdict.clear + '.'));
        return;
    }
    const weightAt = [x => x, x => 10 ** (3 * x - 3), x => 2 ** (8 * x - 4) / 99][state.scale];
    const [low, middle, high] = [['0', '.5', '1'], ['.001', '.03', '1'], ['1/16', 'uniform', '16 ×']][state.scale];
    const swatch = (_, i) => {
        const made = element('i', i === 5 ? { title: middle } : {});
        made.style.background = paint(weightAt(i / 10), 99).fill;
        return made;
    };
    const mark = (shown, name, text) => shown ? element('span', {}, element('i', { className: name }), text) : '';
    $('legend').replaceChildren(element('span', {}, low, ...Array.from({ length: 11 }, swatch), high),
        mark(part.causal, 'unseen', 'comes later'), mark(state.special, 'hidden', 'special, not shown'));
}

function badge(part, layer, head) {
    let mass = 0, n = 0;
    part.rows.forEach((_, i) => {
        if (part.rowSpecial[i]) return;
        n++;
        part.keys.forEach((_, j) => mass += part.keySpecial[j] && !unseen(part, i, j) ? weight(part, layer, head, i, j) : 0);
    });
    const held = number(n ? mass / n : 0);
    $('badge').textContent = ['', `special tokens hidden; they hold ${held} of the weight`,
        `renormalised without special tokens (${held} of the weight): not what the model used`][state.special];
}

// The texts: made once a part, then only coloured, so that focus and pointer stay.
let textsOf = null;
const alone = part => part.self || part.rows.length === 1;
function makeTexts(part) {
    const line = (id, words, kind) => element('p', { className: 'words' }, element('small', { id }), ...words.map((w, i) => {
        const made = element('button', { dir: 'auto' }, w);
        made.dataset[kind] = i;
        return made;
    }));
    textsOf = part;
    $('texts').replaceChildren(...alone(part) ? [] : [line('writtenSay', part.rows, 'row')],
        part.across ? '' : line('readSay', part.keys, part.self ? 'row' : 'key'));
    if (!alone(part)) $('writtenSay').textContent = 'written words; point at one';
}

function texts(part, map) {
    if (textsOf !== part) makeTexts(part);
    const { row, key } = cursor(), weights = map[part.self || part.rows.length > 1 ? row : 0];
    const mean = j => {
        const seen = map.map(w => w[j]).filter(w => w >= 0);
        return seen.length ? seen.reduce((a, b) => a + b) / seen.length : HIDDEN;
    };
    const say = $('readSay');
    if (!say) {
        all('[data-row]').forEach((button, i) => button.className = i === row ? 'chosen' : '');
        return;
    }
    if (weights) say.replaceChildren('what “', element('bdi', {}, part.rows[Math.max(0, row)]), `” ${part.verb}`);
    else say.textContent = 'weight received, mean of the rows' + (part.self ? '; point at a word' : '');
    [...say.parentNode.querySelectorAll('button')].forEach((button, j) => {
        const w = weights ? weights[j] : mean(j), { fill, ink } = w < 0 ? { fill: '', ink: '' } : paint(w, visible(part, weights ? row : part.rows.length - 1));
        Object.assign(button.style, { background: fill, color: ink });
        button.className = (w < 0 ? 'off ' : '') + (j === (part.self ? row : key) ? 'chosen' : '');
    });
    all('[data-row]').forEach((button, i) => {
        if (!part.self) button.className = (state.special && part.rowSpecial[i] ? 'off ' : '') + (i === row ? 'chosen' : '');
    });
}

// ---- the whole page ----

function draw() {
    const { part: p, layer, head } = view(), part = data.parts[p], map = drawMap();
    const name = `${part.name} layer ${layer + 1}` + (head < 0 ? (part.heads === 1 ? ', its one head' : `, mean of ${part.heads} heads`) : ` head ${head + 1}`);
    const entropy = head < 0 ? -1 : part.entropy[layer][head];
    $('name').textContent = name + (head < 0 ? '' : `: ${part.roles[layer][head]}`) + (entropy < 0 ? '' : `, entropy ${number(entropy)}`);
    $('map').setAttribute('aria-label', `${name}. Rows: ${part.rowSay}. Columns: ${part.keySay}.`);
    legend(part);
    say(part, layer, head, map);
    texts(part, map);
    badge(part, layer, head);
}

function thumbnail(button) {
    const d = button.dataset, part = data.parts[d.part];
    const canvas = button.querySelector('canvas') || button.appendChild(element('canvas'));
    canvas.width = part.keys.length;
    canvas.height = part.rows.length;
    const g = canvas.getContext('2d'), image = g.createImageData(canvas.width, canvas.height);
    shownMap(part, +d.layer, +d.head).forEach((weights, i) => weights.forEach((w, j) => {
        if (w >= 0) image.data.set([...paint(w, visible(part, i)).rgb, 255], 4 * (i * weights.length + j));
    }));
    g.putImageData(image, 0, 0);
}

const thumbs = $('thumbs');    // none of one head alone
const press = (button, pressed) => button.setAttribute('aria-pressed', pressed);
function controls() {
    all('[data-field]').forEach(button => press(button, state[button.dataset.field] === +button.dataset.value));
    if (thumbs) thumbs.textContent = state.thumbs ? 'roles' : 'thumbnails';
    all('.head').forEach(button => state.thumbs ? thumbnail(button) : button.querySelector('canvas')?.remove());
    all('[data-part]').forEach(button => {
        const d = button.dataset;
        press(button, +d.part === state.part && +d.layer === state.layer && +d.head === state.head);
    });
}

const address = () => `#${data.parts[state.part].letter}${state.layer + 1}.${state.head < 0 ? 'mean' : state.head + 1}`
    + (state.row < 0 ? '' : `&q=${state.row + 1}`) + (state.key < 0 ? '' : `&k=${state.key + 1}`)
    + (state.scale !== data.start.scale ? `&s=${state.scale}` : '') + (state.special ? `&t=${state.special}` : '') + (state.thumbs ? '&m=1' : '');

function set(change) {
    if ('part' in change && change.part !== state.part) change = { row: -1, key: -1, ...change };
    Object.assign(state, change);
    over = null;
    controls();
    draw();
    try { history.replaceState(null, '', address()); } catch (e) { /* some viewers forbid it */ }
}

// What an address says; whatever in it is wrong is left out.
function fromAddress() {
    const found = /^#([a-z])(\d+)\.(mean|\d+)(.*)$/.exec(location.hash), change = {};
    const part = found ? data.parts.findIndex(p => p.letter === found[1]) : -1;
    if (part >= 0) {
        const layer = found[2] - 1, head = found[3] === 'mean' ? -1 : found[3] - 1, { layers, heads, rows, keys } = data.parts[part];
        if (layer >= 0 && layer < layers && head < heads && (head >= 0 || found[3] === 'mean')) {
            Object.assign(change, { part, layer, head, row: -1, key: -1, scale: data.start.scale, special: 0, thumbs: 0 });
            const fields = { q: ['row', rows.length, 1], k: ['key', keys.length, 1], s: ['scale', 3, 0], t: ['special', 3, 0], m: ['thumbs', thumbs ? 2 : 1, 0] };
            for (const [, letter, digits] of found[4].matchAll(/&([qkstm])=(\d+)(?=&|$)/g)) {
                const [field, count, first] = fields[letter], value = digits - first;
                if (value >= 0 && value < count) change[field] = value;
            }
        }
    }
    set(change);
}

// ---- pointer and keys ----

const narrow = matchMedia('(max-width: 820px)'), dark = matchMedia('(prefers-color-scheme: dark)');
const toggled = (field, value) => ({ [field]: state[field] === value ? -1 : value });

document.addEventListener('click', event => {
    const button = event.target.closest('button');
    if (!button) return;
    const d = button.dataset;
    if (d.part) {
        set({ part: +d.part, layer: +d.layer, head: +d.head, ...d.from && { row: +d.from, key: -1 } });
        if (narrow.matches) $('name').scrollIntoView();
    } else if (d.field) set({ [d.field]: +d.value });
    else if (d.row) set({ key: -1, ...toggled('row', +d.row) });
    else if (d.key) set(toggled('key', +d.key));
    else if (button.id === 'thumbs') set({ thumbs: 1 - state.thumbs });
    else if (button.id === 'keys') $('help').showModal();
});

function point(at) {
    if (JSON.stringify(at) === JSON.stringify(over)) return;
    over = at;
    draw();
}
let last = '';
document.addEventListener('pointerover', event => {
    const at = `${event.clientX},${event.clientY}`;    // a page that moves under a resting mouse is no move
    if (event.pointerType !== 'mouse' || at === last) return;
    last = at;
    const d = event.target.closest('.head,.layer,[data-row],[data-key]')?.dataset;
    if (d?.part) point({ part: +d.part, layer: +d.layer, head: +d.head });
    else if (d?.row) point({ row: +d.row, key: -1 });
    else if (d?.key) point({ row: state.row, key: +d.key });
    else if (event.target.id !== 'map') point(null);
});

function cellAt(event) {
    const bounds = $('map').getBoundingClientRect(), part = data.parts[state.part];
    if (part.across) return placeAt(part, event.clientX - bounds.left, event.clientY - bounds.top);
    const key = Math.floor((event.clientX - bounds.left - cells.x) / cells.size);
    const row = Math.floor((event.clientY - bounds.top - cells.y) / cells.size);
    if (row >= part.rows.length || key >= part.keys.length || row < 0 && key < 0) return null;
    return { row: Math.max(-1, row), key: Math.max(-1, key) };
}
$('map').addEventListener('pointermove', event => { if (event.pointerType === 'mouse') point(cellAt(event)); });
$('map').addEventListener('pointerleave', () => point(null));
$('map').addEventListener('click', event => {
    const at = cellAt(event);
    if (at) set(at.row === state.row && at.key === state.key ? { row: -1, key: -1 } : at);
});

const plain = word => word.normalize('NFD').replace(/\p{M}/gu, '').toLowerCase();
function find(after) {
    const { rows } = data.parts[state.part], sought = plain($('find').value), hit = i => sought && plain(rows[i]).startsWith(sought);
    const order = rows.map((_, i) => (after + 1 + i) % rows.length);
    set({ row: order.find(hit) ?? -1, key: -1 });
}
$('find').addEventListener('input', () => find(-1));

// Left and right go through the heads, the mean of a layer before them, and on to the next part.
function sideways(by) {
    const part = state.part + by, head = state.head + by, there = data.parts[part];
    if (head >= -1 && head < data.parts[state.part].heads) set({ head });
    else if (there) set({ part, head: by > 0 ? -1 : there.heads - 1, layer: Math.min(state.layer, there.layers - 1) });
}
const step = (field, by, first, count) => set({ [field]: clamp(state[field] + by, first, count - 1) });
const act = {
    ArrowRight: () => sideways(1),
    ArrowLeft: () => sideways(-1),
    ArrowDown: part => step('layer', 1, 0, part.layers),
    ArrowUp: part => step('layer', -1, 0, part.layers),
    ']': part => step('row', 1, 0, part.rows.length),
    '[': part => step('row', -1, 0, part.rows.length),
    '.': part => step('key', 1, 0, part.keys.length),
    ',': part => step('key', -1, 0, part.keys.length),
    s: () => set({ scale: (state.scale + 1) % 3 }),
    t: () => set({ special: (state.special + 1) % 3 }),
    m: () => thumbs && set({ thumbs: 1 - state.thumbs }),
    '/': () => $('find').focus(),
    '?': () => $('help').showModal(),
    Escape: () => set({ row: -1, key: -1 }),
};
document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey || $('help').open) return;
    if (event.target.id === 'find') {
        if (event.key === 'Enter') find(state.row);
        if (event.key === 'Escape') event.target.blur();
        return;
    }
    if (!Object.hasOwn(act, event.key)) return;
    const follow = document.activeElement.matches('.head,.layer');
    act[event.key](data.parts[state.part]);
    if (follow) document.querySelector('.layer[aria-pressed=true],.head[aria-pressed=true]')?.focus();
    event.preventDefault();
});

function recolour(paper) {
    root.classList.toggle('paper', paper);
    readColours();
    controls();
    draw();
}
addEventListener('hashchange', fromAddress);
addEventListener('resize', draw);
addEventListener('beforeprint', () => recolour(true));
addEventListener('afterprint', () => recolour(false));
dark.addEventListener('change', () => recolour(false));
$('view').hidden = false;
readColours();
fromAddress();
