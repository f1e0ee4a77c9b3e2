// Figures: the data of the page turned into plotly's, in the colours of the present theme.
"use strict";

(() => {
  const { figures, slots } = JSON.parse(document.getElementById("figures").textContent);
  const FONT = getComputedStyle(document.body).fontFamily;
  const touches = matchMedia("(hover: none)").matches;
  const PRINTED = 640;
  const drawn = []; // for each figure the function that draws it, again and again

  // Plotly reads a little HTML and TeX in its texts, and the names in ours come from anyone.
  const plain = (text) => String(text).replace(/[&<>$]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  const place = (x) => (typeof x === "string" ? plain(x) : x);
  const digits = (axis) => (axis.is_share ? ".2~%" : ".4~g");
  const faded = (colour, alpha) => colour.replace("rgb(", "rgba(").replace(")", `, ${alpha})`);

  function hover(figure, series) {
    const along = figure.kind === "stacked" ? "x" : "y";
    const name = figure.kind === "lines" ? "" : "%{fullData.name}: ";
    const text = series.texts.length ? "<br>%{customdata}" : "";
    return `${name}%{${along}:${digits(figure.y)}}${text}<extra>${
      figure.kind === "lines" ? "%{fullData.name}" : ""
    }</extra>`;
  }

  function spread(series, colour) {
    if (!series.low.length) return undefined;
    const gap = (ends, sign) =>
      series.y.map((y, i) => (y === null || ends[i] === null ? 0 : sign * (ends[i] - y)));
    return {
      type: "data",
      symmetric: false,
      array: gap(series.high, 1),
      arrayminus: gap(series.low, -1),
      color: colour,
      thickness: 1.2,
      width: 3,
    };
  }

  function trace(figure, series, isShown, width) {
    const colour = theme.colour(`s${slots[figure.id][figure.series.indexOf(series)]}`);
    const common = {
      name: plain(series.name),
      visible: isShown,
      showlegend: false,
      customdata: series.texts.map(plain),
      hovertemplate: hover(figure, series),
    };
    if (figure.kind === "lines") {
      const isShort = series.x.length <= 16;
      return {
        ...common,
        type: "scatter",
        mode: isShort ? "lines+markers" : "lines",
        x: series.x.map(place),
        y: series.y,
        error_y: spread(series, faded(colour, 0.7)),
        line: { color: colour, width: 2, dash: series.is_dashed ? "dot" : "solid" },
        marker: {
          color: series.is_dashed ? theme.colour("paper") : colour,
          size: 7,
          line: { color: colour, width: series.is_dashed ? 1.5 : 0 },
        },
      };
    }
    const isFlat = figure.kind === "stacked";
    // Numbers stand in the bars where these are wide enough for them.
    const bars = figure.series.reduce((sum, s) => sum + s.x.length, 0);
    const isWide = !isFlat && width / bars > 52;
    return {
      ...common,
      type: "bar",
      orientation: isFlat ? "h" : "v",
      x: isFlat ? series.y : series.x.map(place),
      y: isFlat ? series.x.map(place) : series.y,
      error_y: isFlat ? undefined : spread(series, theme.colour("soft")),
      texttemplate: isWide ? `%{y:${figure.y.is_share ? ".1%" : ".3~g"}}` : undefined,
      textposition: "inside",
      insidetextanchor: "start",
      textangle: 0,
      textfont: { size: 11, color: theme.colour(series.is_dashed ? "ink" : "paper") },
      width: isFlat ? 0.36 : undefined,
      marker: series.is_dashed
        ? { color: faded(colour, 0.12), line: { color: colour, width: 1.2 } }
        : { color: colour, line: { color: theme.colour("paper"), width: isFlat ? 1 : 0 } },
    };
  }

  function axis(model, extra) {
    return {
      title: { text: plain(model.label), standoff: 10, font: { size: 12 } },
      type: model.kind === "category" ? "category" : "linear",
      tickformat: model.kind === "category" ? undefined : model.is_share ? ".2~%" : "~g",
      hoverformat: model.kind === "category" ? undefined : digits(model),
      automargin: true,
      zeroline: false,
      gridcolor: theme.colour("hair"),
      linecolor: theme.colour("rule"),
      tickcolor: theme.colour("rule"),
      showspikes: false,
      ...extra,
    };
  }

  // Epochs, stages and other small whole numbers: a tick for each, none between.
  function ticks(figure) {
    const places = [...new Set(figure.series.flatMap((series) => series.x))];
    const isFew = places.length <= 10 && places.every(Number.isInteger);
    return isFew ? { tickvals: places } : {};
  }

  function bands(figure) {
    const label = { showarrow: false, yref: "paper", yanchor: "bottom", y: 1, font: { size: 11 } };
    return {
      shapes: figure.bands.map(({ start, end }, i) => ({
        type: "rect",
        layer: "below",
        yref: "paper",
        x0: start,
        x1: end,
        y0: 0,
        y1: 1,
        line: { width: 0 },
        fillcolor: i % 2 ? "rgba(0,0,0,0)" : theme.colour("band"),
      })),
      annotations: figure.bands.map(({ start, end, label: text }) => ({
        ...label,
        text: plain(text),
        x: (start + end) / 2,
      })),
    };
  }

  // Names of runs are long: they stand above their bars, where a phone has room for them too.
  const short = (text, width) => {
    const most = Math.floor(width / 7);
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
  };
  const names = (figure, width) => ({
    annotations: [...new Set(figure.series.flatMap((s) => s.x))].map((x) => ({
      text: plain(short(x, width)),
      showarrow: false,
      xref: "paper",
      x: 0,
      xanchor: "left",
      align: "left",
      y: plain(x),
      yshift: 21,
      font: { size: 12, color: theme.colour("ink") },
    })),
  });

  // A few bars do not become blocks: none is wider than a thumb.
  function gap(figure, width) {
    const places = new Set(figure.series.flatMap((series) => series.x)).size;
    return 1 - Math.min(0.72, (figure.series.length * 64 * places) / width);
  }

  function layout(figure, width) {
    const isFlat = figure.kind === "stacked";
    const across = isFlat ? figure.y : figure.x;
    const up = isFlat ? figure.x : figure.y;
    const isLine = figure.kind === "lines";
    return {
      ...(isFlat ? names(figure, width) : bands(figure)),
      font: { family: FONT, size: 12, color: theme.colour("soft") },
      // A sheet of A4 is narrower than most screens, and nothing is laid out again for it.
      width: theme.isPrinting() ? PRINTED : undefined,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: isFlat ? 4 : 48, r: 8, t: isFlat ? 12 : figure.bands.length ? 24 : 14, b: 40 },
      barmode: isFlat ? "stack" : "group",
      bargap: isFlat ? 0 : gap(figure, width),
      bargroupgap: 0.08,
      hovermode: isLine && figure.series.length <= 8 ? "x unified" : "closest",
      hoverlabel: {
        bgcolor: theme.colour("card"),
        bordercolor: theme.colour("rule"),
        font: { family: FONT, size: 12, color: theme.colour("ink") },
        namelength: 28,
      },
      dragmode: touches ? false : "zoom", // a finger that scrolls must not zoom
      xaxis: axis(across, {
        showgrid: isFlat,
        showline: !isFlat,
        ticks: isFlat ? "" : "outside",
        ...(isLine ? ticks(figure) : {}),
        // The line below the pointer. Of a negative thickness only its border, 2 px wider, is lost.
        showspikes: isLine,
        spikecolor: theme.colour("soft"),
        spikedash: "solid",
        spikethickness: -2,
      }),
      yaxis: axis(
        up,
        isFlat
          ? { title: { text: "" }, showgrid: false, showticklabels: false, ticks: "", autorange: "reversed" }
          : figure.range
            ? { range: figure.range }
            : { rangemode: isLine ? "normal" : "tozero" },
      ),
    };
  }

  for (const figure of figures) {
    const plot = document.getElementById(`plot-${figure.id}`);
    const shown = figure.series.map(() => true);
    const draw = () =>
      Plotly.react(
        plot,
        figure.series.map((series, i) => trace(figure, series, shown[i], plot.clientWidth)),
        layout(figure, plot.clientWidth),
        { displayModeBar: false, responsive: true, doubleClick: "reset" },
      );
    if (figure.kind === "stacked") {
      const rows = new Set(figure.series.flatMap((s) => s.x)).size;
      plot.style.height = `${4 + 3.2 * rows}rem`;
    }
    for (const [i, button] of [...plot.parentElement.querySelectorAll(".legend button")].entries()) {
      button.addEventListener("click", () => {
        shown[i] = !shown[i];
        button.setAttribute("aria-pressed", String(shown[i]));
        draw();
      });
    }
    drawn.push(draw);
  }

  // One after another, so that the page can be read and scrolled meanwhile.
  (function step(i) {
    if (i === drawn.length) return;
    drawn[i]();
    setTimeout(step, 0, i + 1);
  })(0);
  theme.onChange(() => drawn.forEach((draw) => draw()));
})();
