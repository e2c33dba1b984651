//! Actions of requests, and the keys that they need. All checks of keys go through this table: most requests
//! do what their path says ([`of`]); where the body decides, the handler asks the request's [`Rights`].

use crate::admin::page;
use crate::error::ApiError;
use crate::keys::{Keys, has_key};
use axum::http::{HeaderMap, Method};

/// Something that a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Shows that the server runs and which models it has, or the page, which asks for a key itself.
    SeeServer,
    /// Asks the model for something, and shows the server's state. A model that a request names is loaded
    /// for it.
    Ask,
    /// Loads a model without asking it for anything: no more than any request for it does.
    LoadModel,
    /// Unloads a model that others may be using.
    UnloadModel,
    /// Changes how long a model stays loaded without requests.
    KeepModel,
    /// Downloads, copies or deletes files of models.
    ChangeFiles,
    /// Has tensors replaced by those of changed files.
    ReplaceTensors,
    /// Limits the memory of the weights' slots.
    LimitMemory,
    /// Exchanges the experts on devices, or begins a new window of what is reported about them.
    PlaceExperts,
    /// Saves, restores or erases what a slot holds.
    ChangeSlots,
    /// Changes what requests get that set nothing.
    SetDefaults,
    /// Changes the adapters of requests that name none.
    ScaleAdapters,
}

/// The key that an action needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// None.
    Nothing,
    /// Any, if the server has keys.
    Key,
    /// An admin key, if the server has such, otherwise as [`Needs::Key`].
    AdminKey,
}

impl Action {
    /// All actions.
    #[cfg(test)]
    pub const ALL: [Self; 12] = [
        Self::SeeServer,
        Self::Ask,
        Self::LoadModel,
        Self::UnloadModel,
        Self::KeepModel,
        Self::ChangeFiles,
        Self::ReplaceTensors,
        Self::LimitMemory,
        Self::PlaceExperts,
        Self::ChangeSlots,
        Self::SetDefaults,
        Self::ScaleAdapters,
    ];

    /// The key that it needs.
    pub const fn needs(self) -> Needs {
        match self {
            Self::SeeServer => Needs::Nothing,
            Self::Ask | Self::LoadModel => Needs::Key,
            Self::UnloadModel
            | Self::KeepModel
            | Self::ChangeFiles
            | Self::ReplaceTensors
            | Self::LimitMemory
            | Self::PlaceExperts
            | Self::ChangeSlots
            | Self::SetDefaults
            | Self::ScaleAdapters => Needs::AdminKey,
        }
    }
}

/// Actions of requests by their method and path; all others are [`Action::Ask`]. A path with a slash at its
/// end stands for all paths that begin with it. The bodies of three can do more: `/health` replaces
/// tensors where that is set up, `keep_alive` keeps or unloads a model.
const ROUTES: [(Method, &str, Action); 21] = [
    (Method::GET, "/", Action::SeeServer),
    (Method::GET, page::FILES, Action::SeeServer),
    (Method::GET, "/health", Action::SeeServer),
    (Method::GET, "/v1/health", Action::SeeServer),
    (Method::GET, "/v1/models", Action::SeeServer),
    (Method::GET, "/models", Action::SeeServer),
    (Method::POST, "/v1/memory", Action::LimitMemory),
    (Method::POST, "/v1/tensors/reload", Action::ReplaceTensors),
    // GET applies what is reported now.
    (Method::GET, "/moe-hot-cache", Action::PlaceExperts),
    (Method::POST, "/moe-hot-cache", Action::PlaceExperts),
    (Method::POST, "/moe-layer-perf", Action::PlaceExperts),
    (Method::POST, "/slots/", Action::ChangeSlots),
    (Method::POST, "/props", Action::SetDefaults),
    (Method::POST, "/lora-adapters", Action::ScaleAdapters),
    (Method::POST, "/models/load", Action::LoadModel),
    (Method::POST, "/models/unload", Action::UnloadModel),
    (Method::POST, "/api/pull", Action::ChangeFiles),
    (Method::POST, "/api/create", Action::ChangeFiles),
    (Method::POST, "/api/copy", Action::ChangeFiles),
    (Method::POST, "/api/push", Action::ChangeFiles),
    (Method::DELETE, "/api/delete", Action::ChangeFiles),
];

/// Action of a request by its method and path.
pub fn of(method: &Method, path: &str) -> Action {
    let found = ROUTES.iter().find(|(of, route, action)| {
        // Routers answer HEAD as GET; what anybody may see, HEAD need not.
        let head = *of == Method::GET && *method == Method::HEAD && *action != Action::SeeServer;
        let whole = *route == "/" || !route.ends_with('/');
        (method == of || head) && if whole { path == *route } else { path.starts_with(route) }
    });
    found.map_or(Action::Ask, |(.., action)| *action)
}

/// Rights of a request, by its key.
#[derive(Clone, Copy, Debug)]
pub struct Rights {
    user: bool,
    admin: bool,
    /// True if it has a key where most requests need one.
    known: bool,
}

impl Rights {
    /// The rights of a request with these headers.
    pub fn of(keys: &Keys, headers: &HeaderMap) -> Self {
        let known = has_key(headers) && !keys.are_none();
        Self { user: keys.allow(headers), admin: keys.allow_changes(headers), known }
    }

    /// Returns true if it may do this.
    pub fn allow(self, action: Action) -> bool {
        self.check(action).is_ok()
    }

    /// Checks that it may do this.
    ///
    /// # Errors
    /// 401 without a key that is needed, 403 with one that is not enough.
    pub fn check(self, action: Action) -> Result<(), ApiError> {
        match action.needs() {
            Needs::Nothing => Ok(()),
            Needs::Key | Needs::AdminKey if !self.user => Err(ApiError::unauthorized()),
            Needs::AdminKey if !self.admin && self.known => Err(ApiError::not_admin()),
            Needs::AdminKey if !self.admin => Err(ApiError::unauthorized_change()),
            Needs::Key | Needs::AdminKey => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_follow_from_keys_for_each_action() {
        let with = |key: &str| HeaderMap::from_iter([("x-api-key".parse().unwrap(), key.parse().unwrap())]);
        let keys = |users: &[&str], admins: &[&str]| {
            let owned = |keys: &[&str]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
            Keys::new(&owned(users), &owned(admins))
        };
        let status = |keys: &Keys, headers: &HeaderMap, action| {
            Rights::of(keys, headers).check(action).map_or_else(|error| error.status.as_u16(), |()| 200)
        };
        for action in Action::ALL {
            let expected = match action.needs() {
                Needs::Nothing => [[200; 4]; 4],
                // By the server's keys: none, a user's, an admin's, both. By the request's: none, a wrong
                // one, a user's, an admin's.
                Needs::Key => [[200; 4], [401, 401, 200, 401], [200; 4], [401, 401, 200, 200]],
                Needs::AdminKey => {
                    [[200; 4], [401, 401, 200, 401], [401, 401, 401, 200], [401, 401, 403, 200]]
                }
            };
            let servers = [keys(&[], &[]), keys(&["u"], &[]), keys(&[], &["a"]), keys(&["u"], &["a"])];
            for (server, expected) in servers.iter().zip(expected) {
                let requests = [HeaderMap::new(), with("x"), with("u"), with("a")];
                assert_eq!(requests.map(|headers| status(server, &headers, action)), expected, "{action:?}");
            }
        }
    }

    #[test]
    fn paths_are_compared_whole() {
        for (method, path, action) in [
            (Method::GET, "/page/main.js", Action::SeeServer),
            (Method::GET, "/paged", Action::Ask),
            (Method::GET, "/v1/models/x", Action::Ask),
            (Method::HEAD, "/moe-hot-cache", Action::PlaceExperts),
            (Method::GET, "/slots", Action::Ask),
            (Method::POST, "/slots/3", Action::ChangeSlots),
            (Method::POST, "/health", Action::Ask),
        ] {
            assert_eq!(of(&method, path), action, "{method} {path}");
        }
    }
}
