package web

import (
	"embed"
	"io/fs"
	"net/http"
)

// openAPI describes the API; generated from proto/liana/v1.
//
//go:embed openapi.swagger.json
var openAPI []byte

//go:embed static
var static embed.FS

func document(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI) // the client is gone
}

// pagePolicy lets the page use what this server sends, and nothing from elsewhere.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page shows the document.
func page(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", pagePolicy)
	http.ServeFileFS(w, r, static, "static/docs.html")
}

// pageFiles are what the page loads.
func pageFiles() http.Handler {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic("bug: " + err.Error())
	}
	return http.StripPrefix("/docs/", http.FileServerFS(files))
}
