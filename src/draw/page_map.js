// Drawing one map on the page's canvas: a matrix, or the places of a picture.
'use strict';

// "/" for what cannot be seen, "\" for what is not shown.
function hatch(g, x, y, size, hidden) {
    const step = size < 8 ? 4 : 5, across = a => hidden ? x + size - a : x + a;
    g.beginPath();
    for (let d = step / 2; d < 2 * size; d += step) {
        g.moveTo(across(Math.max(0, d - size)), y + Math.min(d, size));
        g.lineTo(across(Math.min(d, size)), y + Math.max(0, d - size));
    }
    g.stroke();
}

function fitted(g, word, width) {
    if (g.measureText(word).width <= width) return word;
    const whole = Intl.Segmenter ? [...new Intl.Segmenter().segment(word)].map(s => s.segment) : [...word];
    while (whole.length && g.measureText(whole.join('') + '…').width > width) whole.pop();
    return whole.join('') + '…';
}

// Sizes so that everything lies inside the width: labels of rows at the left, labels of keys
// above, turned by 50°, of which the last ones reach beyond the cells, or upright, where cells
// are narrow.
const TURN = Math.PI * 50 / 180, NARROW = 18;
function measure(g, part, width, font) {
    font(true, 13);
    const rows = part.rows.map(w => fitted(g, w, Math.min(170, width * .3)));
    const keys = part.keys.map(w => fitted(g, w, Math.min(130, width * .25)));
    const long = list => Math.max(...list.map(w => g.measureText(w).width));
    const x = Math.ceil(long(rows)) + 12;
    let size = (width - x - 12) / keys.length, turn = TURN;
    if (size < NARROW) turn = Math.PI / 2;
    else keys.forEach((w, j) => size = Math.min(size, (width - x - 14 - g.measureText(w).width * Math.cos(turn)) / (j + .5)));
    size = clamp(size >= 4 ? Math.floor(size) : size, .5, 30);
    return { x, y: Math.ceil(long(keys) * Math.sin(turn)) + 18, size, rows, keys, turn };
}

// Which labels stand, where not all find room: the one chosen, those of the largest strength,
// then as many of the others as fit, evenly.
function standing(strength, chosen, apart) {
    const stand = new Set(), step = Math.ceil(apart / cells.size);
    const free = i => { for (let d = 1 - step; d < step; d++) if (stand.has(i + d)) return false; return true; };
    if (chosen >= 0) stand.add(chosen);
    strength.map((s, i) => [s, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).forEach(([, i]) => { if (free(i)) stand.add(i); });
    return stand;
}

// Of a key: its largest weight, where that is .10 or more or a row's largest.
function keyStrength(part, map) {
    const most = map.map(weights => Math.max(...weights));
    return part.keys.map((_, j) => Math.max(0, ...map.map((weights, i) => weights[j] >= .1 || weights[j] === most[i] ? weights[j] : 0)));
}

function labels(g, part, map, font) {
    const { x, y, size, rows, keys, turn } = cells, { row, key } = cursor(), small = clamp(Math.floor(size) - 2, 10, size < 21 ? 11 : 13);
    const side = (words, chosen, special, strength, apart, place) => {
        const stand = standing(strength, chosen, apart);
        words.forEach((word, i) => {
            if (!stand.has(i)) return;
            font(i === chosen, small);
            g.globalAlpha = state.special && special[i] ? .45 : 1;
            g.fillStyle = i === chosen ? colour.amber : chosen >= 0 ? colour.soft : colour.ink;
            g.save();
            place(i);
            g.fillText(word, 0, 0);
            g.restore();
            g.globalAlpha = 1;
        });
    };
    g.textBaseline = 'middle';
    g.textAlign = 'right';
    side(rows, row, part.rowSpecial, rows.map(() => 0), small + 2, i => g.translate(x - 7, y + i * size + size / 2));
    g.textAlign = 'left';
    side(keys, key, part.keySpecial, keyStrength(part, map), (small + 1) / Math.sin(turn), j => {
        g.translate(x + j * size + size / 2 + (turn === TURN ? 2 : 0), y - 7);
        g.rotate(-turn);
    });
}

function drawCells(g, part, map, font) {
    const { x, y, size } = cells, side = size < 8 ? size : size - 1;
    g.textAlign = 'center';
    g.textBaseline = 'middle';
    g.lineWidth = .7;
    g.strokeStyle = colour.soft;
    map.forEach((weights, i) => {
        const seen = visible(part, i), top = y + i * size;
        weights.forEach((w, j) => {
            const left = x + j * size;
            if (w < 0) return hatch(g, left, top, side, w === HIDDEN);
            const { fill, ink } = paint(w, seen);
            g.fillStyle = fill;
            g.fillRect(left, top, side, side);
            if (size < 22 || w < .1) return;
            font(false, size > 25 ? 11 : 10);
            g.fillStyle = ink;
            g.fillText(Math.round(100 * w), left + side / 2, top + side / 2 + 1);
        });
    });
}

function drawMarks(g, part) {
    const { x, y, size } = cells, { row, key } = cursor(), n = part.rows.length, m = part.keys.length;
    g.fillStyle = colour.amber;
    if (!state.special) verdict()?.unclear.forEach(i => {
        g.beginPath();
        g.arc(x + m * size + 6, y + i * size + size / 2, Math.min(2.5, size / 2), 0, 7);
        g.fill();
    });
    g.strokeStyle = state.scale === 2 ? colour.ink : colour.amber;    // amber is a colour of that ramp
    g.lineWidth = 1.5;
    if (row >= 0) g.strokeRect(x - .75, y + row * size - .75, m * size + .5, size + .5);
    if (key >= 0) g.strokeRect(x + key * size - .75, y - .75, size + .5, n * size + .5);
}

// The places of a picture: for each row the picture, and on each place a shade, the stronger
// the nearer its weight to the row's largest.
let image = null;
const PANEL = 140, GAP = 16, HEADING = 22;
function measurePlaces(part, width) {
    const fit = clamp(Math.floor((width + GAP) / (PANEL + GAP)), 1, Math.max(1, part.rows.length));
    const size = Math.max(1, Math.floor(((width + GAP) / Math.min(fit, 4) - GAP) / part.across));
    const wide = size * part.across, high = size * part.keys.length / part.across;
    return { across: part.across, size, wide, high, beside: Math.min(fit, 4), x: wide + GAP, y: high + HEADING + GAP };
}

function drawPlaces(g, part, map, font) {
    const { size, wide, high, beside, x, y } = cells, { row, key } = cursor(), n = part.across;
    const said = verdict();
    image ||= Object.assign(new Image(), { onload: () => draw(), src: data.picture.image });
    g.textBaseline = 'alphabetic';
    map.forEach((weights, i) => {
        const left = i % beside * x, top = (i / beside | 0) * y + HEADING, most = Math.max(...weights);
        font(true, 13);
        g.fillStyle = i === row ? colour.amber : colour.ink;
        g.fillText(fitted(g, part.rows[i], wide - 34), left, top - 7);
        font(false, 12);
        g.textAlign = 'right';
        g.fillStyle = said?.unclear.includes(i) ? colour.amber : colour.soft;
        if (said && most >= 0) g.fillText(said.held[i], left + wide, top - 7);
        g.textAlign = 'left';
        g.fillStyle = '#FFFFFF';
        g.fillRect(left, top, wide, high);
        if (image.complete) g.drawImage(image, left, top, wide, high);
        g.fillStyle = data.picture.shade;
        weights.forEach((w, j) => {
            g.globalAlpha = w > 0 ? w / most * .8 : 0;
            g.fillRect(left + j % n * size, top + (j / n | 0) * size, size, size);
        });
        g.globalAlpha = 1;
        g.strokeStyle = i === row ? colour.amber : colour.line;
        g.lineWidth = i === row ? 2 : 1;
        g.strokeRect(left + .5, top + .5, wide - 1, high - 1);
        g.strokeStyle = colour.amber;
        if (key >= 0 && (row < 0 || row === i)) g.strokeRect(left + key % n * size, top + (key / n | 0) * size, size, size);
    });
}

function placeAt(part, x, y) {
    const { size, wide, high, beside, x: apart, y: below } = cells;
    const column = Math.floor(x / apart), row = Math.floor(y / below) * beside + column;
    const across = x - column * apart, down = y % below - HEADING;
    if (column >= beside || row >= part.rows.length || across >= wide || down >= high) return null;
    return { row, key: down < 0 ? -1 : Math.floor(down / size) * part.across + Math.floor(across / size) };
}
