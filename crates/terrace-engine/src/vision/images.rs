//! Images of a prompt that is still text: marks stand for them until it is cut into tokens.

use super::error::VisionError;
use terrace_ggml::llama::Sampling;

/// Files of a prompt's images, each with a mark that stands for it in the prompt's text. Marks have a
/// random number, so that no client can write one. Images are decoded one after the other, when the
/// text is cut.
#[derive(Clone, Debug)]
pub struct Images {
    mark: String,
    files: Vec<Vec<u8>>,
}

/// A part of a prompt.
pub enum PromptPart<'a> {
    /// A text without marks.
    Text(&'a str),
    /// The file of image `number`, from 1.
    Image {
        number: usize,
        /// Its bytes.
        file: &'a [u8],
    },
}

/// The end of a mark.
const END: char = 'E';

impl Default for Images {
    fn default() -> Self {
        // Letters and digits, which templates leave as they are.
        Self { mark: format!("TerraceImage{:016x}N", Sampling::random_seed()), files: Vec::new() }
    }
}

impl Images {
    /// Adds the file of an image. Returns the mark that is to stand for it.
    pub fn push(&mut self, file: Vec<u8>) -> String {
        self.files.push(file);
        format!("{}{}{END}", self.mark, self.files.len() - 1)
    }

    /// Number of images.
    pub const fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns true if there are none.
    pub const fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Cuts a text at the marks in it.
    ///
    /// # Errors
    /// [`VisionError::LeftOut`] and [`VisionError::Repeated`]: it has not each mark once.
    pub(super) fn parts<'a>(&'a self, text: &'a str) -> Result<Vec<PromptPart<'a>>, VisionError> {
        let mut seen = vec![false; self.files.len()];
        let mut pieces = text.split(self.mark.as_str());
        let mut parts: Vec<PromptPart<'a>> = pieces.next().into_iter().map(PromptPart::Text).collect();
        for piece in pieces {
            let of_mark = piece.split_once(END).and_then(|(number, rest)| Some((number.parse().ok()?, rest)));
            let Some((number, rest)) = of_mark.filter(|&(number, _): &(usize, _)| number < seen.len()) else {
                // A template has changed a mark.
                let number = seen.iter().position(|seen| !seen).unwrap_or(0) + 1;
                return Err(VisionError::LeftOut { number });
            };
            if std::mem::replace(&mut seen[number], true) {
                return Err(VisionError::Repeated { number: number + 1 });
            }
            parts.push(PromptPart::Image { number: number + 1, file: &self.files[number] });
            parts.push(PromptPart::Text(rest));
        }
        match seen.iter().position(|seen| !seen) {
            Some(number) => Err(VisionError::LeftOut { number: number + 1 }),
            None => Ok(parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_their_own_marks() {
        let mut images = Images::default();
        let (first, second) = (images.push(vec![1]), images.push(vec![2]));
        let text = format!("a{second}{first}b");
        let parts: Vec<String> = images
            .parts(&text)
            .unwrap()
            .into_iter()
            .map(|part| match part {
                PromptPart::Text(text) => text.to_owned(),
                PromptPart::Image { number, file } => format!("{number}{file:?}"),
            })
            .collect();
        assert_eq!(parts, ["a", "2[2]", "", "1[1]", "b"]);
        let error = |text: &str| images.parts(text).err().unwrap().to_string();
        assert_eq!(error(&first), "the chat template leaves image 2 out");
        assert_eq!(error(&format!("{first}{second}{first}")), "the chat template repeats image 1");
        assert_eq!(error(&first[..first.len() - 1]), "the chat template leaves image 1 out");
        let other = Images::default();
        assert_ne!(other.mark, images.mark);
        assert!(
            matches!(other.parts(&text).unwrap()[..], [PromptPart::Text(_)]),
            "another prompt's are text"
        );
    }
}
