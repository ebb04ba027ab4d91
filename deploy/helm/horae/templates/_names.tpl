{{- define "horae.name" -}}
{{- if contains "horae" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-horae" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- /* What selects the pods of a component; never changes. (dict "root" $ "component" "api") */ -}}
{{- define "horae.selector" -}}
app.kubernetes.io/name: horae
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "horae.labels" -}}
{{ include "horae.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "horae.storeSecret" -}}
{{- if .Values.store.existingSecret }}{{ .Values.store.existingSecret }}
{{- else if .Values.store.url }}{{ include "horae.name" . }}-store
{{- else }}{{ fail "set store.existingSecret to a Secret with the address of PostgreSQL, or store.url to the address" }}
{{- end }}
{{- end }}

{{- define "horae.tokenSecret" -}}
{{- if .Values.tokens.existingSecret }}{{ .Values.tokens.existingSecret }}
{{- else if .Values.tokens.secret }}{{ include "horae.name" . }}-tokens
{{- else }}{{ fail "set tokens.existingSecret to a Secret with at least 32 random bytes, tokens.secret to these, or tokens.jwks to the keys of your issuer" }}
{{- end }}
{{- end }}
