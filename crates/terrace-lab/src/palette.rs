//! Colours of drawings.

use plotters::style::RGBColor;

/// Distinguishable for most eyes: Okabe and Ito, "Color Universal Design", without black, the dark ones first.
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(240, 228, 66),
];
