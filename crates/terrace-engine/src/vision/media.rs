//! Positions of the images of a sequence, and of the tokens after them.

use std::sync::Arc;
use terrace_ggml::vision::ImagePiece;

/// The pieces of images in a sequence of tokens, in order.
#[derive(Clone, Debug, Default)]
pub struct Media {
    spans: Vec<Span>,
    /// One for each span.
    pieces: Vec<Arc<ImagePiece>>,
}

/// The place of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first token.
    pub at: usize,
    /// Number of its tokens.
    pub tokens: usize,
    /// Number of positions that they take.
    pub positions: usize,
}

impl Span {
    /// The first token after it.
    pub const fn end(self) -> usize {
        self.at + self.tokens
    }
}

impl Media {
    /// Returns true if there are no images.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Appends a piece whose first token is number `at`.
    pub(crate) fn push(&mut self, at: usize, piece: ImagePiece) {
        let span = Span { at, tokens: piece.tokens(), positions: piece.positions() as usize };
        self.spans.push(span);
        self.pieces.push(Arc::new(piece));
    }

    /// Appends the pieces of others, whose tokens come after `tokens` of this sequence.
    pub(crate) fn append(&mut self, others: &Self, tokens: usize) {
        self.spans.extend(others.spans.iter().map(|span| Span { at: span.at + tokens, ..*span }));
        self.pieces.extend_from_slice(&others.pieces);
    }

    /// Drops the pieces of which nothing is among the first `tokens` tokens.
    pub(crate) fn settle(&mut self, tokens: usize) {
        let kept = self.spans.partition_point(|span| span.at < tokens);
        self.spans.truncate(kept);
        self.pieces.truncate(kept);
    }

    /// The position of the token at `index`; within a piece, that of its first token.
    pub(crate) fn position(&self, index: usize) -> usize {
        let before = self.spans.iter().take_while(|span| span.at < index);
        let saved = before.map(|span| match index < span.end() {
            true => index - span.at,
            false => span.tokens - span.positions,
        });
        index - saved.sum::<usize>()
    }

    /// Returns true if positions are not just numbers of tokens.
    pub fn shifts(&self) -> bool {
        self.spans.iter().any(|span| span.tokens != span.positions)
    }

    /// The first token of the first image.
    pub fn first(&self) -> Option<usize> {
        self.spans.first().map(|span| span.at)
    }

    /// `tokens`, or fewer, such that no piece is divided: the context cannot be cut back to a place
    /// within one.
    pub fn whole(&self, tokens: usize) -> usize {
        self.span_of(tokens).filter(|span| span.at < tokens).map_or(tokens, |span| span.at)
    }

    /// The piece that the token at `index` belongs to.
    pub(crate) fn piece_of(&self, index: usize) -> Option<(Span, &Arc<ImagePiece>)> {
        let place = self.place_of(index)?;
        Some((self.spans[place], self.pieces.get(place)?))
    }

    /// The place of the piece that the token at `index` belongs to.
    pub fn span_of(&self, index: usize) -> Option<Span> {
        self.place_of(index).map(|place| self.spans[place])
    }

    fn place_of(&self, index: usize) -> Option<usize> {
        let place = self.spans.partition_point(|span| span.end() <= index);
        self.spans.get(place).is_some_and(|span| span.at <= index).then_some(place)
    }

    /// The first token of the first piece after the token at `index`.
    pub(crate) fn next(&self, index: usize) -> Option<usize> {
        self.spans.get(self.spans.partition_point(|span| span.at <= index)).map(|span| span.at)
    }

    /// Media whose pieces are places alone.
    #[cfg(test)]
    pub(crate) fn of_spans(spans: &[(usize, usize, usize)]) -> Self {
        let span = |&(at, tokens, positions)| Span { at, tokens, positions };
        Self { spans: spans.iter().map(span).collect(), pieces: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_on_where_images_say() {
        // Two images of 6 tokens: one in three rows, one of which each token has a position.
        let media = Media::of_spans(&[(2, 6, 3), (10, 6, 6)]);
        let positions: Vec<usize> = (0..18).map(|index| media.position(index)).collect();
        assert_eq!(positions, [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 7, 7, 7, 7, 7, 13, 14]);
        assert!(media.shifts() && !Media::of_spans(&[(10, 6, 6)]).shifts());
    }

    #[test]
    fn pieces_are_not_divided() {
        let media = Media::of_spans(&[(2, 6, 3), (8, 4, 4)]);
        let whole: Vec<usize> = (0..=13).map(|tokens| media.whole(tokens)).collect();
        assert_eq!(whole, [0, 1, 2, 2, 2, 2, 2, 2, 8, 8, 8, 8, 12, 13]);
        assert_eq!(media.span_of(1), None);
        assert_eq!(media.span_of(7).map(|span| span.at), Some(2));
        assert_eq!(media.span_of(8).map(|span| span.at), Some(8));
        assert_eq!((media.next(0), media.next(2), media.next(8)), (Some(2), Some(8), None));
        let mut cut = media.clone();
        cut.settle(8);
        assert_eq!((cut.first(), cut.next(2)), (Some(2), None));
        let mut longer = media.clone();
        longer.append(&media, 100);
        assert_eq!(longer.span_of(110).map(|span| span.at), Some(108));
    }
}
