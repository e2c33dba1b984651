//! The images of a run.

use std::path::{Path, PathBuf};
use terrace_cli::error::CliError;
use terrace_engine::{Image, Images};
use terrace_platform::input_file;

/// The mark of an image in a prompt of plain text.
const MARKER: &str = "<__media__>";

/// Most bytes of a file that are read; longer ones are refused.
const MOST_BYTES: u64 = 64 << 20;

/// Reads the files, and puts what stands for them into the prompt's text: at its markers, if it is plain
/// text that has them, and otherwise before it.
///
/// # Errors
/// A file is not an image; the prompt has another number of markers.
pub fn with_images(files: &[PathBuf], text: String, chat: bool) -> Result<(String, Images), CliError> {
    let mut images = Images::default();
    if files.is_empty() {
        return Ok((text, images));
    }
    let marks =
        files.iter().map(|file| Ok(images.push(read(file)?))).collect::<Result<Vec<_>, CliError>>()?;
    let places = text.matches(MARKER).count();
    if chat || places == 0 {
        return Ok((marks.concat() + &text, images));
    }
    if places != marks.len() {
        return Err(CliError::Usage {
            message: format!("there are {} images, but the prompt has {MARKER} {places} times", marks.len()),
            hint: format!("write {MARKER} once for each --image, or leave it out"),
        });
    }
    let mut parts = text.split(MARKER);
    let mut marked = parts.next().unwrap_or_default().to_owned();
    for (part, mark) in parts.zip(&marks) {
        marked += mark;
        marked += part;
    }
    Ok((marked, images))
}

/// Reads a file, which is an image.
fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let what = path.display().to_string();
    let bytes = input_file::read(path, MOST_BYTES).map_err(CliError::io(&what))?;
    Image::read(&bytes).map_err(|reason| CliError::Usage {
        message: format!("{what}: {reason}"),
        hint: "--image takes PNG, JPEG, WebP, GIF and BMP files".into(),
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_images_a_prompt_stays_as_it_is() {
        let (text, images) = with_images(&[], format!("a {MARKER}"), false).unwrap();
        assert!(images.is_empty() && text == "a <__media__>");
    }
}
