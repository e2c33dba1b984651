//! Images that clients send with a prompt: in data URLs, or in base64.

use crate::advice::Reason;
use crate::app::Ready;
use crate::error::ApiError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use terrace_engine::Images;

/// Most images of a prompt.
const MAX_IMAGES: usize = 64;

/// The mark of an image in the texts of llama-server's prompts.
pub const MARKER: &str = "<__media__>";

/// The images of a prompt.
#[derive(Clone, Debug, Default)]
pub struct Pictures {
    images: Images,
    /// Path of the first one.
    first: Option<String>,
}

impl Pictures {
    /// Adds the image of a URL. Returns what stands for it in the prompt's text.
    ///
    /// # Errors
    /// It is not a data URL in base64: nothing is fetched, and no file is read.
    pub fn url(&mut self, place: &str, url: &str) -> Result<String, ApiError> {
        let Some(data) = url.strip_prefix("data:") else {
            let scheme: String = url.split(':').next().unwrap_or_default().chars().take(16).collect();
            let message = match url.contains(':') {
                true => format!(
                    "`{place}` is a URL with `{scheme}:`: this server reads images in `data:` URLs only"
                ),
                false => format!("`{place}` is not a URL: images are sent as `data:image/png;base64,...`"),
            };
            return Err(ApiError::unsupported(place, message));
        };
        match data.split_once(',') {
            Some((kind, data)) if kind.ends_with(";base64") => self.base64(place, data),
            _ => Err(ApiError::field(place, format!("`{place}` is a data URL, but not in base64"))),
        }
    }

    /// Adds an image in base64. Returns what stands for it in the prompt's text.
    ///
    /// # Errors
    /// It is not valid, or one image too many.
    pub fn base64(&mut self, place: &str, data: &str) -> Result<String, ApiError> {
        if self.images.len() == MAX_IMAGES {
            return Err(ApiError::field(place, format!("there are more than {MAX_IMAGES} images")));
        }
        // Some clients break lines.
        let data: Vec<u8> = data.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let bytes = STANDARD.decode(&data);
        let bytes = bytes
            .map_err(|error| ApiError::field(place, format!("`{place}` is not valid base64: {error}")))?;
        self.first.get_or_insert_with(|| place.to_owned());
        Ok(self.images.push(bytes))
    }

    /// The images, for a model that reads images.
    ///
    /// # Errors
    /// There are some, and the model reads none.
    pub fn of(&self, ready: &Ready) -> Result<&Images, ApiError> {
        match &self.first {
            Some(place) if !ready.facts.sees() => {
                let message = format!("`{place}` has an image: this server reads no images");
                Err(ApiError::unsupported(place, message).with(ready.advise(Reason::NoProjector)))
            }
            _ => Ok(&self.images),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_data_and_nothing_is_fetched() {
        let mut pictures = Pictures::default();
        let mark = pictures.url("p", "data:image/png;base64,AA EC\n").unwrap();
        assert!(!mark.is_empty() && mark != pictures.base64("p", "AAEC").unwrap());
        assert_eq!(pictures.images.len(), 2);
        for (url, part) in [
            ("http://127.0.0.1/a.png", "a URL with `http:`: this server reads images in `data:` URLs only"),
            ("file:///etc/passwd", "a URL with `file:`"),
            ("AAEC", "not a URL"),
            ("data:image/png,AAEC", "not in base64"),
            ("data:image/png;base64,A", "not valid base64"),
        ] {
            let error = pictures.url("messages[0].content", url).unwrap_err();
            assert!(error.message().contains(part), "{}", error.message());
        }
        for _ in 2..MAX_IMAGES {
            pictures.base64("p", "AAEC").unwrap();
        }
        assert!(pictures.base64("p", "AAEC").unwrap_err().message().contains("more than 64"));
    }
}
