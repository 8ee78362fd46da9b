// Charts drawn by the program, shown in the colours of the page.

import type { JSX } from "preact";
import type { Picture } from "../generated";
import { Measured } from "./controls";

/** The widest picture that fits in `width` pixels, else the narrowest. */
export function fitting(pictures: readonly Picture[], width: number): Picture | undefined {
  const byWidth = [...pictures].sort((a, b) => b.width - a.width);
  return byWidth.find((p) => p.width <= width * 1.15) ?? byWidth[byWidth.length - 1];
}

export function Drawn({ pictures, title }: { pictures: readonly Picture[]; title: string }): JSX.Element {
  return (
    <Measured>
      {(width) => <div class="drawn" role="img" aria-label={title} dangerouslySetInnerHTML={{ __html: fitting(pictures, width)?.svg ?? "" }} />}
    </Measured>
  );
}
